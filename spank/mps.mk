# The MPS part's objects; included by Makefile.
MPS_OBJS = mps.o mps_env.o mps_state.o mps_daemon.o limits.o process.o tree.o
