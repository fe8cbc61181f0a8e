// Package proxy puts the limits of a [throttle.Transport] before programs that are not
// written in Go: a handler that they reach by a base URL.
//
//	http://127.0.0.1:7070/oapi.dingtalk.com/topapi/user/get?id=1
//
// is sent on as https://oapi.dingtalk.com/topapi/user/get?id=1, when the policies have room.
// Paths, queries and bodies stay as the caller has written them. The command "throttle proxy"
// serves this handler.
//
// An answer of the proxy itself has the header "Via: 1.1 throttle" and a body of
// application/problem+json; an answer of the upstream has neither, unless the upstream set them.
package proxy
