// Module browsertest looks at the page of package dashboard in a browser. It is a module of its
// own so that nobody who uses throttle depends on what drives the browser.
module github.com/fleetthrottle/throttle/servers/dashboard/browsertest

go 1.26.0

replace github.com/fleetthrottle/throttle => ../../..

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/fleetthrottle/throttle v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
