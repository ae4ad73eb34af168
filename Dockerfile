# One static binary and nothing else. `make image` cross-builds the binaries first, so that one
# machine makes the image for every architecture, with the same digest each time.
FROM scratch
ARG TARGETOS
ARG TARGETARCH
ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="csi-node-driver-registrar" \
      org.opencontainers.image.description="Registers a CSI driver with kubelet and keeps it registered" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
# The mode is written out: the umask of who builds would otherwise be part of the digest.
COPY --chmod=0755 bin/${TARGETOS}-${TARGETARCH}/csi-node-driver-registrar /csi-node-driver-registrar
USER 0
ENTRYPOINT ["/csi-node-driver-registrar"]
