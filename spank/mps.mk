# The MPS part's objects and the command ltgf-mps; included by Makefile.
MPS_OBJS = mps.o mps_check.o mps_env.o mps_state.o mps_daemon.o mps_smi.o mps_run.o mps_names.o mps_place.o \
	mps_end.o mps_reap.o limits.o process.o tree.o

.DEFAULT_GOAL := all

all: $(BUILD)/ltgf-mps

$(BUILD)/ltgf-mps: $(BUILD)/ltgf_mps.o $(addprefix $(BUILD)/,$(MPS_OBJS))
	$(CC) $(CFLAGS) $(LTGF_LDFLAGS) -o $@ $^ $(LDFLAGS)

# The same under ASan and UBSan, for tests.
$(BUILD)/san/ltgf-mps: $(BUILD)/san/ltgf_mps.o $(addprefix $(BUILD)/san/,$(MPS_OBJS))
	$(CC) $(SAN_CFLAGS) -o $@ $^

.PHONY: install-mps uninstall-mps
install: install-mps
uninstall: uninstall-mps

install-mps: all
	install -d $(DESTDIR)$(SBINDIR)
	install -m 0755 $(BUILD)/ltgf-mps $(DESTDIR)$(SBINDIR)/ltgf-mps

uninstall-mps:
	rm -f $(DESTDIR)$(SBINDIR)/ltgf-mps
