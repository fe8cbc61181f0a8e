// Package dingtalk is DingTalk's (钉钉) table of limits as policies, for both
// families of its API: the old one on oapi.dingtalk.com, which refuses with status
// 200, and the new one on api.dingtalk.com. Facts as of 2026-11.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: dingtalk.Policies(dingtalk.Options{App: "dingabc"}),
//	}))}
//
// Package [github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest] is a
// DingTalk for the tests of programs that use these policies.
//
// # Rows
//
//	row                   limit               one budget for each
//	dingtalk-ip           10,000/20s          address
//	dingtalk-api          20/s to 60/s        application and API
//	dingtalk-app                              application
//	dingtalk-company                          company
//	dingtalk-company-api                      company and API
//	dingtalk-global                           API
//	dingtalk-month        the edition's       company, calls that count
//	dingtalk-webhooks     the edition's       company, robots' webhooks
//	dingtalk-robot        20/m                robot's token
//	dingtalk-robot-month  the company's       robot's token
//	dingtalk-session                          session
//
// and for single APIs, with costs and people read from the request:
//
//	dingtalk-robot-code                       robot of the new API, and API
//	dingtalk-ding             5,999/m         robot's DINGs
//	dingtalk-notices          5,000 people/m  application and company
//	dingtalk-notices-company                  company
//	dingtalk-notices-all      3 a day         company, notices to everybody
//	dingtalk-service-window   100 a day       company, messages to all fans
//	dingtalk-forms            20/s            company
//	dingtalk-resumes          30/m            company
//	dingtalk-calendar         100 a day       person, new events
//	dingtalk-tasks            100 a day       person, tasks of the old API
//	dingtalk-pushes           100 a day       person, a service number's messages to one
//
// With [Options.ISV] there are more, because many companies use the application,
// and dingtalk-api and dingtalk-month have no number:
//
//	dingtalk-suite-company-api  40/s  application, company and API
//	dingtalk-suite-company            application and company
//	dingtalk-isv                      vendor
//	dingtalk-isv-api                  vendor and API
//	dingtalk-isv-company              vendor and company
//	dingtalk-isv-company-api          vendor, company and API
//	dingtalk-notices-suite            application
//	dingtalk-customers          1/s   company
//
// # Refusals
//
// What is closed is closed for the whole fleet. Where an answer of the old API
// prints the end, that counts in place of the time here; it is compared with the
// answer's Date and with the clock of the machine, and the shorter time counts.
// Retry-After is the least that anything stays closed for, whatever the code says.
//
//	the ban, below                             dingtalk-ip           5m or more
//	90001                                      dingtalk-ip           1s
//	90002, QpsLimitForApi                      dingtalk-global       1s
//	90003                                      dingtalk-company      1s
//	90004                                      dingtalk-app          1s
//	90005                                      dingtalk-company-api  1m
//	90006, QpmLimitForAppkeyAndApi             dingtalk-api          1m
//	90011 (suite)                              dingtalk-app          1m
//	90012 (suite and API)                      dingtalk-api          1m
//	90017                                      dingtalk-ip           1m
//	90018, QpsLimitForAppkeyAndApi             dingtalk-api          1s
//	90020, ApiCountLimitForOrg                 dingtalk-month        until the 1st
//	90030                                      dingtalk-webhooks     until the 1st
//	130101, 410100; 660026 about a pace        -robot, -session      10m
//	send.too.fast, send.toofast,               dingtalk-robot-code   1s
//	send.byToken.tooFast, too.many.group,
//	too.many.people
//	toomuch.msg                                dingtalk-ding         1m
//	some twenty codes of products              dingtalk-api          1s
//	45009, which says nothing else             dingtalk-api          1m
//	a 429 with any other code                  dingtalk-api          Retry-After or 1s
//	a 403 with any other code and Retry-After  dingtalk-api          Retry-After
//	ten 503 in a row with any other code       dingtalk-api          Retry-After
//	integrated.qps.exceed, request.illegal,    dingtalk-company-api  until midnight
//	daily.call.limit
//	updateSpeedfast                            dingtalk-company-api  5m
//	throttling.device, 800055, 820011,         dingtalk-company-api  1s
//	todo.taskCreate.flowControlError
//	flowLimit                                  dingtalk-calendar     until midnight
//	854002                                     dingtalk-tasks        until midnight
//	800017                                     dingtalk-pushes       until midnight
//	41045, 41046                               -notices-all          until midnight
//	143103, 143203                             dingtalk-notices      1m
//	143104, 41047, 41048                       -notices-company      1m
//	143204                                     -notices-suite        1m
//	90007 (vendor and company)                 -isv-company          1m
//	90008 (the same and API)                   -isv-company-api      1m
//	90009 (vendor)                             -isv                  1m
//	90010 (vendor and API)                     -isv-api              1m
//	90013 (suite and company)                  -suite-company        1m
//	90014, QpmLimitForSuitekeyAndOrgAndApi     -suite-company-api    1m
//	90019, QpsLimitForSuitekeyAndOrgAndApi     -suite-company-api    1s
//
// The page on [DingTalk] has all codes of products, and what of each is
// official. Midnight and the 1st are Beijing's. A code whose row the request has no
// part in, such as the code of a robot where no robot is called, closes dingtalk-api for
// a short time and dingtalk-company-api for a long one. Without [Options.ISV] the
// codes of vendors and suites close the row whose budget is then the same: the
// company's or the application's.
//
// Rows without a number are unlimited: they hold nothing until an answer closes
// them, and cost next to nothing. All windows but the months slide, because it is not
// known which of DingTalk's are fixed.
//
// # The ban
//
// More than 10,000 calls from one address in 20 seconds close everything to that
// address for five minutes (official [1] [2]). The answer has no error code: it is
// JSON with "punish" and "wait", which a program that looks for errcode takes for
// success, or an HTML page. Its status and media type are not documented.
//
// The JSON is found with any status, in an answer that calls itself JSON, text, HTML, XML,
// application/octet-stream or has no type; in an answer of any other type only if it is an error or
// states a length of up to 4 KB; never in an event stream, a multipart body, or behind a
// Content-Encoding other than gzip and deflate. HTML is taken for the ban with status 200 and 403, on the two hosts of
// the API, unless the request asked for it (Accept): with any other status it is likely to be a
// gateway's own page (inferred).
//
// A ban that also has the code of a limit is a refusal of that limit: 130101 the robot's (observed
// [8]), 90018 an application's API. The address stays open then (inferred), and the limit's budget
// is closed for at least the ban's "wait".
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
// and the paths of the rows above. Any other path shares a budget with the rest of its product, as
// "/v1.0/contact": slow but safe. Under dingtalk-company-api, which has no number, each path is an
// API.
//
// # Where waiting is of no use
//
// A month's quota that is used up is back on the 1st in Beijing, or at once after an upgrade
// (official [4]). The row closes until then, but never for longer than [throttle.MaxPenalty]: once
// a day a request is sent and refused again. Callers whose deadline or [throttle.Config.MaxWait] is
// earlier are refused at once. [throttle.Limiter.Resume] opens the budget after an upgrade. The
// month is counted here only if [Options.Edition] names the edition; then a call above the quota
// waits until the 1st, and [throttle.Config.Observe] is told at once. [Options.Buffer] uses the
// five days in which DingTalk only warns. Every call counts except calls of DingTalk's free APIs
// [3], webhooks, and calls that [Options.Metered] excludes; a call refused by the second's limit of
// an application or an API is given back (official [11]). Other applications of the company count
// too: their calls are unknown until DingTalk refuses.
//
// # Not covered
//
//   - People who got nothing although the answer is a success: [ReadUnsent] reads
//     who, and why. Only the codes of a minute close a row.
//   - What one person may get in a day: 500 work notices, the same text once.
//   - errcode -1, "busy", and the new API's bare "Forbidden", which is usually a
//     missing permission: nothing is closed without a Retry-After (official [5]).
//   - Volumes of inbound messages and events, which are no requests of ours but count
//     for the month of webhooks (official).
//   - Whether robot/send counts as an API of an application is not known: it does
//     here, which is safe.
//
// # Sources
//
// Official: [1], in English [2], free APIs [3], months [4], codes [5], old codes [6], editions and
// the calls that count [11]; the sources of single rows are on the page on [DingTalk], each with
// its date. Observed: the larger editions of old contracts [7], 130101 [8], the printed end [9],
// 90030 [10]; in public code: 40/s of a suite, 90017, 90019, 660026 about a pace. Inferred: the
// zone of printed ends, of days and of months, one minute and one second where nothing is printed.
//
//	[1]  https://open.dingtalk.com/document/development/how-to-process-api-throttling-on-the-dingtalk-server
//	[2]  https://help.dingtalk.io/open/development/call-frequency-limit
//	[3]  https://open.dingtalk.com/document/development/basic-interfaces-such-as-log-off-and-address-book
//	[4]  https://www.dingtalk.com/qidian/help-detail-1061621972.html
//	[5]  https://open.dingtalk.com/document/development/server-api-error-codes-1
//	[6]  https://github.com/ddtalk/dingTalkDoc (source/includes/_server.md)
//	[7]  https://open.dingtalk.com/document/orgapp/descriptions-about-adjusting-limit-and-frequency-of-api-calls
//	[8]  https://blog.csdn.net/jialiuyang/article/details/118615052
//	[9]  https://github.com/ali-sdk/node-dingtalk/issues/32
//	[10] https://developer.aliyun.com/ask/595588
//	[11] https://open.dingtalk.com/document/development/dingtalk-application-development-platform-billing-model
//
// [DingTalk]: https://github.com/fleetthrottle/throttle/blob/main/docs/presets/dingtalk.md
package dingtalk
