// Package dingtalktest is a DingTalk (钉钉) for tests. It counts every call as the
// documentation says that DingTalk counts, refuses what is too much with the
// bodies that DingTalk sends, and bans an address that calls too often.
//
//	ding := dingtalktest.New(dingtalktest.Options{})
//	transport, err := throttle.New(throttle.Config{
//		Store:    memstore.New(),
//		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc"}),
//		Base:     ding, // in place of the network
//	})
//	// … the calls of the program under test …
//	require.Empty(t, ding.Refusals())
//
// A [Server] is an [http.RoundTripper]: as the transport of a client it answers
// calls to oapi.dingtalk.com and api.dingtalk.com in the same process, also in
// virtual time (testing/synctest). It is an [http.Handler] too: for a program
// that needs a URL, or runs as several processes, [net/http/httptest.NewServer]
// serves it, and [dingtalk.Options.Host] is the host of that URL.
//
// # APIs
//
// A Server has an address book, and two ways to log in. Any application exists,
// with any secret, and its token is "token-of-" and its key. The APIs are
//
//	/gettoken                              /topapi/v2/department/listsub
//	/v1.0/oauth2/accessToken               /topapi/v2/user/list
//	/v1.0/contact/users/{unionId}          /robot/send
//
// [Server.HandleFunc] adds more. A call of /topapi/attendance/ or /v1.0/workflow/
// counts for the month.
package dingtalktest
