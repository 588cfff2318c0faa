# syntax=docker/dockerfile:1

# The program in the image is the one of the release's archive. Build it from a clone
# without changes: the version is the one of its commit.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
RUN git config --global --add safe.directory /src \
 && go -C tools run ./release -C .. -o /release -platforms "$TARGETOS/$TARGETARCH" \
 && mkdir /image \
 && tar -xzf /release/*.tar.gz --strip-components=1 -C /image

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /image/LICENSE /image/THIRD-PARTY-LICENSES.txt /licenses/
COPY --from=build /image/mcp-sidecar /usr/local/bin/
# The number, so that Kubernetes can tell that it isn't root.
USER 65532:65532
# For mcp-sidecar.db. A volume of this user keeps it.
WORKDIR /home/nonroot
# Agents, metrics and probes, the admin API.
EXPOSE 8080 9090 9091
ENTRYPOINT ["/usr/local/bin/mcp-sidecar"]
CMD ["run"]
