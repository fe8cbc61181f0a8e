// Package browsertest tests the page of package dashboard in Chromium, which
// scripts/install-chromium.sh installs. The command pictures uses it to create
// docs/pictures/dashboard*.png.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fleetthrottle/throttle"
)

// A Browser is a headless Chromium.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts the browser that the environment variable CHROMIUM names or, by
// default, chromium, chromium-browser or google-chrome: the first of these names
// that is on PATH. Close ends it.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}

	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		// Tests may run as root, and visit only their own pages.
		chromedp.NoSandbox,
	)

	ctx, endBrowser := chromedp.NewContext(allocator)
	b := &Browser{ctx, []context.CancelFunc{endBrowser, endAllocator}}

	// Do starts the browser.
	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		return nil, err
	}

	return b, nil
}

// find returns the path of the browser: see Start.
func find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium: run make browser, or set CHROMIUM")
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// script returns the source of axe-core, which finds accessibility faults.
func script() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("no axe-core: run make browser (%w)", err)
	}
	return string(text), nil
}

// runAxe lists each violation of WCAG 2.2 (A and AA) and of the best practices
// that axe-core knows.
const runAxe = `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ` +
	`v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; "))))`

// Violations returns the accessibility faults of the page as it is now.
func (p *Page) Violations() ([]string, error) {
	axe, err := script()
	if err != nil {
		return nil, err
	}
	if _, err := Value[bool](p, axe+"; true"); err != nil {
		return nil, err
	}

	text, err := Value[string](p, runAxe)
	if err != nil {
		return nil, err
	}

	var all []string
	err = json.NewDecoder(strings.NewReader(text)).Decode(&all)
	return all, err
}

// Policies returns the policies of a scene: an open platform, a language model,
// a warehouse, and a shadow policy.
func Policies() []throttle.Policy {
	byPath := func(r *http.Request) string { return r.URL.Path }
	return []throttle.Policy{
		{Name: "dingtalk api", Match: "oapi.dingtalk.com/", Key: byPath, Limit: throttle.PerSecond(20)},
		{Name: "dingtalk address", Match: "oapi.dingtalk.com/", Limit: throttle.SlidingWindow(10_000, 20*time.Second)},
		{Name: "openai requests", Match: "api.openai.com/v1/", Limit: throttle.PerMinute(500)},
		{Name: "openai at once", Match: "api.openai.com/v1/", Limit: throttle.Concurrency(16)},
		{Name: "warehouse", Match: "warehouse.example.com/", Limit: throttle.PerSecond(40)},
		{Name: "warehouse trial", Match: "warehouse.example.com/", Limit: throttle.PerSecond(15), Shadow: true},
	}
}

// A caller makes one call after the next.
type caller struct {
	url   string
	pause time.Duration // between two calls
	takes time.Duration // duration of a call
}

// callers are the calls of a program. Some exceed the limits.
var callers = []caller{
	{"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0}, {"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0},
	{"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0}, {"https://oapi.dingtalk.com/topapi/v2/user/list", 0, 0},
	{"https://oapi.dingtalk.com/topapi/v2/department/listsub", 300 * time.Millisecond, 0},
	{"https://oapi.dingtalk.com/topapi/message/corpconversation/asyncsend_v2", 700 * time.Millisecond, 0},
	{"https://api.openai.com/v1/responses", 1500 * time.Millisecond, 900 * time.Millisecond},
	{"https://api.openai.com/v1/responses", 2 * time.Second, 1200 * time.Millisecond},
	{"https://warehouse.example.com/orders", 90 * time.Millisecond, 0},
	{"https://warehouse.example.com/stock", 250 * time.Millisecond, 0},
}

// Run makes the program's calls until ctx ends.
func Run(ctx context.Context, l *throttle.Limiters) {
	var all sync.WaitGroup
	for _, c := range callers {
		all.Go(func() { c.run(ctx, l) })
	}
	all.Wait()
}

// run does the caller's work again and again, until ctx ends.
func (c *caller) run(ctx context.Context, l *throttle.Limiters) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		panic(err)
	}

	for ctx.Err() == nil {
		permit, err := l.AcquireRequest(r)
		if err != nil {
			// The call was refused, or ctx has ended.
			wait(ctx, time.Second)
			continue
		}

		wait(ctx, c.takes)
		permit.Release()
		wait(ctx, c.pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
