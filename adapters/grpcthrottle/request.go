package grpcthrottle

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// request returns the request that policies see of a call. Its host is the given one, or
// the authority if that is "".
func request(ctx context.Context, host, method string, cc *grpc.ClientConn, opts []grpc.CallOption) *http.Request {
	if host == "" {
		host = authority(cc.CanonicalTarget(), opts)
	}
	req := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: host, Path: method}, Host: host,
		Header: make(http.Header),
	}).WithContext(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	for name, values := range md {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	return req
}

// authority returns the host that a call names to its server, as far as a target such as
// dns:///example.com:443 and the call's options tell. It is localhost for sockets of the
// machine, as in gRPC.
func authority(target string, opts []grpc.CallOption) string {
	for _, o := range opts {
		if a, ok := o.(grpc.AuthorityOverrideCallOption); ok {
			return a.Authority
		}
	}

	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	if strings.HasPrefix(u.Scheme, "unix") {
		return "localhost"
	}

	return strings.TrimPrefix(u.Path+u.Opaque, "/")
}
