// Package dingtalk is DingTalk's (钉钉) table of limits as policies, for both
// families of its API: the old one on oapi.dingtalk.com, which refuses with status
// 200, and the new one on api.dingtalk.com. Facts as of 2026-11.
//
//	transport, err := throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, nil),
//		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc", Edition: dingtalk.Professional}),
//	})
//
// # Rows
//
// Whatever is closed is closed for the whole fleet. Where an answer of the old API
// prints the end, that counts in place of the time here; it is compared with the
// answer's Date.
//
//	row                   budget per           limit               closed by, and for how long
//	dingtalk-ip           address              10,000/20s          the ban: 5m or more; 90001: 1s; 90017: 1m
//	dingtalk-api          application, API     20/s, 40/s, 60/s    90018, QpsLimitForAppkeyAndApi: 1s;
//	                                                               90006, QpmLimitForAppkeyAndApi, 90012: 1m;
//	                                                               codes of single products: 1s
//	dingtalk-app          application                              90004: 1s; 90011: 1m
//	dingtalk-company      company                                  90003: 1s
//	dingtalk-company-api  company, API                             90005: 1m
//	dingtalk-global       API                                      90002, QpsLimitForApi: 1s
//	dingtalk-month        company, metered APIs 5,000/month        90020, ApiCountLimitForOrg: until the 1st
//	dingtalk-robot        robot's token        20/m                130101, 410100, 660026: 10m
//	dingtalk-webhooks     company's robots                         90030: until the 1st
//
// With [Options.ISV] there are more, because many companies use the application,
// and of these only dingtalk-suite-company-api has a number. Without it their
// codes close the row above whose budget is then the same.
//
//	dingtalk-suite-company-api  application, company, API  40/s  90019, QpsLimitForSuitekeyAndOrgAndApi: 1s;
//	                                                             90014, QpmLimitForSuitekeyAndOrgAndApi: 1m
//	dingtalk-suite-company      application, company             90013: 1m
//	dingtalk-isv                vendor                           90009: 1m
//	dingtalk-isv-api            vendor, API                      90010: 1m
//	dingtalk-isv-company        vendor, company                  90007: 1m
//	dingtalk-isv-company-api    vendor, company, API             90008: 1m
//
// Rows without a number let a million a second through; answers close them all the
// same. All windows slide, because nobody knows which of DingTalk's are fixed.
// The numbers per minute that the documentation had until about 2023 (1,500 calls
// of an application to an API) are not in it any more: their codes are obeyed, but
// nothing is counted. Whoever wants to changes the Limit of the returned row.
//
// # The ban
//
// More than 10,000 calls from one address in 20 seconds close everything to that
// address for five minutes (official [1] [2]). The answer has no error code: it is
// JSON with "punish" and "wait", which a program that looks for errcode takes for
// success, or an HTML page. It is found whatever its status and media type. HTML
// is taken for the ban on the two hosts of the API, unless it was asked for
// (Accept) or comes with a redirect or a 5xx (inferred).
//
// # APIs
//
// On the old host the path is the API. On the new one the path's template is: one
// of [Options.APIs], or one of
//
//	/v1.0/card/streaming                  /v1.0/robot/groupMessages/send
//	/v1.0/contact/users/{unionId}         /v1.0/robot/oToMessages/batchSend
//	/v1.0/oauth2/accessToken              /v1.0/workflow/processInstances
//	/v1.0/oauth2/{corpId}/token           /v1.0/workflow/processes/instanceIds/query
//
// What fits none shares a budget with the rest of its product, as "/v1.0/contact/":
// slow but safe.
//
// # Where waiting is of no use
//
// A month's quota that is spent is back on the 1st in Beijing, or at once after an
// upgrade (official [4]). The row closes until then, but never for longer than
// [throttle.MaxPenalty]: once a day a request is sent and refused again. Callers
// whose deadline or [throttle.Config.MaxWait] is earlier are refused at once.
// [throttle.Limiter.Resume] opens the budget after an upgrade. Only what
// [Options.Metered] says counts, and other applications of the company count too:
// what they spend is known when DingTalk says so.
//
// # What is not covered
//
//   - Work notices that are dropped in silence: above 5,000 receivers a minute, 500
//     a day for one person, the same text twice a day. The answer is a success; only
//     getsendresult tells (official).
//   - flowControlledStaffIdList, the people that a robot's batchSend skipped in a
//     success (official).
//   - errcode -1, "busy", and the new API's bare "Forbidden", which is usually a
//     missing permission: nothing is closed (official [5]).
//   - Volumes of inbound messages, which are no requests of ours (official).
//   - Whether robot/send counts as an API of an application is not known: it does
//     here, which is safe.
//
// # Sources
//
// Official: [1], in English [2], free APIs [3], months [4], codes [5], old codes
// [6], robots' 20 messages and their ten minutes and 410100 (custom robot page of
// [1]'s site). Observed: the larger editions [7], 40/s of a suite, 660026, 130101
// [8], the printed end [9], 90030 [10]. Inferred: the zone of printed ends and of
// months, what is metered, one minute and one second where nothing is printed.
//
//	[1]  https://open.dingtalk.com/document/development/how-to-process-api-throttling-on-the-dingtalk-server
//	[2]  https://help.dingtalk.io/open/development/call-frequency-limit
//	[3]  https://open.dingtalk.com/document/development/basic-interfaces-such-as-log-off-and-address-book
//	[4]  https://www.dingtalk.com/qidian/help-detail-1061621972.html
//	[5]  https://developers.dingtalk.com/document/app/server-api-error-codes-1
//	[6]  https://github.com/ddtalk/dingTalkDoc (source/includes/_server.md)
//	[7]  https://open.dingtalk.com/document/orgapp/descriptions-about-adjusting-limit-and-frequency-of-api-calls
//	[8]  https://blog.csdn.net/jialiuyang/article/details/118615052
//	[9]  https://github.com/ali-sdk/node-dingtalk/issues/32
//	[10] https://developer.aliyun.com/ask/595588
package dingtalk
