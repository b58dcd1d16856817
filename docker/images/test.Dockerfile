# What the tests need on one Debian release: its own gdb, gcc, Python and libc with debug information.
#   docker build --build-arg SUITE=trixie -f docker/images/test.Dockerfile docker/images
# `make matrix` builds it for every row of docker/matrix.py, also where no registry can be reached (docker/build.py).
ARG SUITE=bookworm
FROM debian:${SUITE}
ARG PACKAGES
ENV DEBIAN_FRONTEND=noninteractive
# redis-tools holds the program redis-server too, without the service. What needs cargo, Java, named or another machine's libc depends on
# none of a release's own, and is tested on one machine, not here (pyproject.toml: the marks).
# sid's index says that it is valid for a week; a mirror may keep it longer.
RUN apt-get -qq -o Acquire::Check-Valid-Until=false update \
    && apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends \
        ca-certificates gcc gdb gdbserver libc6-dbg libc6-dev libjemalloc-dev libjemalloc2 make musl-tools procps python3 python3-venv redis-tools util-linux ${PACKAGES} >/dev/null \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
# The venv is that of Debian's own python3: tests run on the Python that the release's gdb embeds.
# pip.cert is there where this network needs a certificate authority of its own; otherwise it is empty or absent.
COPY pip.cer[t] requirements.txt /tmp/
RUN python3 -m venv /opt/tests \
    && if [ -s /tmp/pip.cert ]; then export PIP_CERT=/tmp/pip.cert; fi \
    && /opt/tests/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir -r /tmp/requirements.txt \
    && rm -f /tmp/pip.cert
ENV PATH=/opt/tests/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /src
