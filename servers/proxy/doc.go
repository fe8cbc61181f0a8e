// Package proxy puts the limits of a [throttle.Transport] before programs that are not
// written in Go: a handler that they reach by a base URL.
//
//	http://127.0.0.1:7070/oapi.dingtalk.com/topapi/user/get?id=1
//
// is sent on as https://oapi.dingtalk.com/topapi/user/get?id=1, when the policies have room.
// Paths, queries and bodies stay as the caller has written them. The command "throttle proxy"
// serves this handler.
//
// A caller may also name the host in its Host field; reach it at an address of its own
// ([Handler.Upstream]); or use the handler as its HTTP_PROXY, with URLs of http, for which the handler goes on
// by https. Tunnels of TLS hide the requests that the policies count, so they are refused, but for the hosts
// that [NewTable] is told of.
// Links of answers lead back to the handler by the way on which the request has come.
//
// A server of the handler should speak HTTP/2 without TLS for callers with gRPC:
// [http.Protocols] has that. Before its end it calls [Handler.Stop], so that what waits starts in
// time or is refused, and then [Handler.Shutdown]. The [throttle.Config.Observe] of the transport
// calls [Observe].
//
// net/http writes to the standard log what an upstream sends without having been asked, which may be
// an answer with secrets: a program sends the output of package log elsewhere if nobody may see that.
//
// An answer of the proxy itself has the header "Via: 1.1 throttle" and a body of
// application/problem+json; an answer of the upstream has neither, unless the upstream set them.
package proxy
