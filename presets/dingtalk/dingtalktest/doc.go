// Package dingtalktest is a DingTalk (钉钉) for tests. It counts every call as the
// documentation says that DingTalk counts, refuses what DingTalk refuses with the
// codes and texts of DingTalk, and bans an address that calls too often.
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
// A Server has an address book, two ways to log in, and three ways to send. The
// permissions (权限点) count if [Options.Apps] names applications:
//
//	API                                        permission
//	GET  /gettoken
//	POST /v1.0/oauth2/accessToken
//	POST /topapi/v2/department/listsub         qyapi_get_department_list
//	POST /topapi/v2/department/listsubid       qyapi_get_department_list
//	POST /topapi/v2/user/list                  qyapi_get_department_member
//	GET  /v1.0/contact/users/{unionId}         Contact.User.Read
//	POST /robot/send
//	POST /v1.0/robot/oToMessages/batchSend     qyapi_robot_sendmsg
//	POST /topapi/message/corpconversation/asyncsend_v2, …/getsendresult
//
// [Server.HandleFunc] adds more. [Server.Token] returns a token to a test that is
// not about the login, and [Server.ExpireTokens] ends all tokens.
//
// # What is refused, and how much of that is known
//
// Official means: on a page of the documentation, read in a copy of 2026-08.
// Observed means: a published answer. All remaining facts are inferred.
//
//	                              old API              new API                  known
//	wrong method                  43001, 43002         405                      official codes; for which APIs: inferred
//	body neither a form nor JSON  43004                                         official for /robot/send; for the others inferred
//	no token                      88/40000             400 MissingParameter     observed
//	unknown or expired token      88/40014             400 InvalidAuthentication  official, texts observed
//	no permission                 88/60011             403 AccessTokenPermissionDenied  official, texts observed
//	wrong secret                  40096                400 invalidClientIdOrSecret  observed; the new one official
//	token asked for too often     88/90006             403 QpmLimitForAppkeyAndApi  that it is limited: official; the codes inferred
//	above 20 calls in a second    88/90018             403 QpsLimitForAppkeyAndApi  official; the old text inferred
//	all applications, one API     88/90002             403 QpsLimitForApi       official, old text observed; the number an option
//	the month's calls             90020                403 ApiCountLimitForOrg  official, old text observed
//	the address, the ban          JSON or [BanPage]    the same                 official; status and page inferred
//	a robot's 20 in a minute      660026               –                        the limit is official with code 410100, 660026 is observed
//	webhooks of the month         90030                –                        the number is official, the code observed
//
// The token is asked for again within its life: it is the same, and its life begins
// anew (official). Both families take it (official for the new login).
//
// Every call counts for the month (official) unless its API is on the list of free APIs (official,
// 2026-07-22), or the second's limit refused it (official). Calls that are refused for their token
// or permission do not count here (inferred); calls with wrong parameters do (inferred). An
// application's second and an address's 20 seconds slide, and a call that is refused for the second
// takes no room in it: [Options.FixedWindows], [Options.CountRefused] and [Options.BanProlongs]
// select the alternatives.
//
// A robot's message to people names those who were held back in
// flowControlledStaffIdList (official; how many are too many is an option). A work
// notice that is too much is dropped in a success, and getsendresult tells: the same
// text to a person on one day 143106, 500 to a person on one day 143105, 5,000
// people of one application in a minute 143103 (official; that the day is
// Beijing's: inferred), the company's people in a minute 143104 (official, without a
// number: an option). Not covered: notices to all staff three times a day.
package dingtalktest
