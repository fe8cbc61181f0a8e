// Demo draws the pictures at the top of the README: the same job of 300 calls without the library and with it, at one
// endpoint of Stripe, and at one of DingTalk for the Chinese page. It takes a minute and a half:
//
//	go run ./internal/lab/demo docs/pictures
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/svg"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/retry"
)

// A picture is of one API with the limit that its provider publishes; its texts are in one language. Its left half shows
// the job without the library, and its right half the job with it.
type picture struct {
	file, title, note string // note is a format: the pods, the workers of each, the calls
	without, with     string
	sum, limit        string // formats: the seconds and the refused calls; the limit
	second            string

	perSecond int
	policies  []throttle.Policy
	method    string
	url       string
}

var pictures = []picture{
	{
		file: "without-with.svg", title: "The same job, without and with throttle",
		note:    "Calls of one Stripe endpoint in each second. %d pods with %d workers each make %d calls.",
		without: "without: each worker backs off", with: "with throttle", second: "second",
		sum: "done after %.1f s, %d calls refused", limit: "limit: %d per second",
		perSecond: 25, policies: stripe.Policies(stripe.Options{}), method: http.MethodGet, url: "https://api.stripe.com/v1/charges",
	},
	{
		file: "without-with.zh.svg", title: "同一个任务，不用和用 throttle",
		note:    "钉钉同一个接口每秒的调用次数。%d 个 Pod，各 %d 个 worker，共 %d 次调用。",
		without: "不用：各个 worker 自己退避重试", with: "用 throttle", second: "秒",
		sum: "%.1f 秒做完，%d 次被限流", limit: "限额：每秒 %d 次",
		perSecond: dingtalk.Standard.PerSecond, policies: dingtalk.Policies(dingtalk.Options{App: "dingexample"}),
		method: http.MethodPost, url: "https://oapi.dingtalk.com/topapi/v2/user/list?access_token=t",
	},
}

// The job: pods with workers each, which make the calls together.
const (
	pods, podWorkers = 4, 16
	calls            = 300
	latency          = 100 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := drawPictures(ctx, os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// drawPictures does the job of each picture without the library and with it, and draws into a folder what the API counted.
// It draws a picture even if a call with the library failed or was refused, and returns that error then.
func drawPictures(ctx context.Context, dir string) error {
	for _, p := range pictures {
		// Without the library each worker backs off when it is refused.
		without := &counter{limit: p.perSecond, begin: time.Now()}
		inParallel(func(int) {
			for wait := time.Second; !without.take() && ctx.Err() == nil; wait *= 2 {
				time.Sleep(wait/2 + rand.N(wait))
			}
		})

		// With the library each worker waits for its start.
		with := &counter{limit: p.perSecond, begin: time.Now()}
		clients, err := clientsOf(p.policies, with)
		if err != nil {
			return err
		}

		errs := make([]error, pods)
		var mu sync.Mutex
		inParallel(func(pod int) {
			if err := ask(ctx, clients[pod], p.method, p.url); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs[pod] = err
			}
		})
		if with.refusals() > 0 {
			errs = append(errs, fmt.Errorf("%d calls were refused with the library", with.refusals()))
		}

		note := fmt.Sprintf(p.note, pods, podWorkers, calls)
		if err := errors.Join(append(errs, p.draw(filepath.Join(dir, p.file), note, without, with))...); err != nil {
			return err
		}
	}
	return nil
}

// inParallel has the workers of all pods do the calls of the job. call does the next call, for a worker of the pod.
func inParallel(call func(pod int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for pod := range pods {
		for range podWorkers {
			workers.Go(func() {
				for next.Add(1) <= calls {
					call(pod)
				}
			})
		}
	}
	workers.Wait()
}

// clientsOf returns a client for each pod. All share one store, as pods share a Redis.
func clientsOf(policies []throttle.Policy, base http.RoundTripper) (clients []*http.Client, err error) {
	store := memstore.New()
	for range pods {
		t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: policies, Base: base})
		if err != nil {
			return nil, err
		}
		clients = append(clients, retry.NewClient(t).StandardClient())
	}
	return clients, nil
}

// ask makes one call.
func ask(ctx context.Context, client *http.Client, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// A counter is an API that answers at most limit calls in any second, and refuses further calls. A refused call does not
// count for the limit. It is safe for concurrent use.
type counter struct {
	limit int
	begin time.Time

	mu                sync.Mutex
	times             []time.Time   // of answered calls
	answered, refused [60]int       // in each second
	last              time.Duration // when the last call came, from begin on
}

// take answers or refuses a call that comes now, and returns after the time that a call takes.
func (c *counter) take() (ok bool) {
	defer time.Sleep(latency)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.last = now.Sub(c.begin)
	second := min(int(c.last/time.Second), len(c.answered)-1)

	if n := len(c.times); n >= c.limit && now.Sub(c.times[n-c.limit]) < time.Second {
		c.refused[second]++
		return false
	}

	c.times = append(c.times, now)
	c.answered[second]++
	return true
}

// RoundTrip answers as Stripe does. DingTalk has a code in the body, but no call with the library is refused.
func (c *counter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: req}
	if !c.take() {
		answer.StatusCode = http.StatusTooManyRequests
	}
	return answer, nil
}

// refusals returns how many calls were refused.
func (c *counter) refusals() (n int) {
	for _, refused := range c.refused {
		n += refused
	}
	return n
}

// most returns the most calls in one second of the clock, answered or refused.
func (c *counter) most() (n int) {
	for second, answered := range c.answered {
		n = max(n, answered+c.refused[second])
	}
	return n
}

// The measures of the picture of two halves.
const (
	halfWidth, halvesHeight = 392.0, 330.0
	halfLeft, halfRight     = 44.0, 16.0
	halfTop, halfBottom     = 122.0, 62.0
)

const halvesRules = `  .half { font-size: 14px; font-weight: 600 }
  .base { stroke: #8c959f }
  .limit { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .mark { fill: #b35900; text-anchor: end }
  .tick { fill: #59636e; text-anchor: middle }
  .taken { fill: #0969da }
  .refused { fill: #cf222e }
`

const halvesDark = `    .base { stroke: #656c76 }
    .limit { stroke: #f0883e }
    .mark { fill: #f0883e }
    .tick { fill: #9198a1 }
    .taken { fill: #4493f8 }
    .refused { fill: #f85149 }
`

// A scale is what both halves of a picture share.
type scale struct {
	seconds, high int
}

// draw writes the picture into a file. Both halves have the same scale.
func (p picture) draw(path, note string, without, with *counter) error {
	d := svg.New(2*halfWidth+2*svg.Margin, halvesHeight, p.title, note, halvesRules, halvesDark)
	s := scale{seconds: int(max(without.last, with.last)/time.Second) + 1, high: max(without.most(), with.most(), p.perSecond)}
	p.drawOne(d, s, svg.Margin, p.without, without)
	p.drawOne(d, s, svg.Margin+halfWidth, p.with, with)
	return os.WriteFile(path, []byte(d.String()), 0o644)
}

// drawOne draws one half, from x on: the calls of one job in each second.
func (p picture) drawOne(d *svg.Drawing, s scale, x float64, name string, c *counter) {
	left, right, base := x+halfLeft, x+halfWidth-halfRight, halvesHeight-halfBottom
	slot := (right - left) / float64(s.seconds)
	y := func(n int) float64 { return base - (base-halfTop)*float64(n)/float64(s.high) } // of a number of calls
	d.Text("half", x, 84, name)
	d.Text("note", x, 104, fmt.Sprintf(p.sum, (c.last+latency).Seconds(), c.refusals()))

	// A bar for each second: the answered calls, and the refused ones above.
	for second := range s.seconds {
		answered, refused := c.answered[second], c.refused[second]
		bar := svg.Box{X: left + slot*(float64(second)+0.15), Width: slot * 0.7}
		bar.Y, bar.Height = y(answered), base-y(answered)
		d.Rect("taken", bar)

		if refused > 0 {
			bar.Y, bar.Height = y(answered+refused), y(answered)-y(answered+refused)
			d.Rect("refused", bar)
		}
		if second == 0 || (second+1)%5 == 0 { // there is no room for more
			d.Text("tick", left+slot*(float64(second)+0.5), base+18, fmt.Sprint(second+1))
		}
	}

	// The limit, the axes and their ends.
	d.Line("limit", left, y(p.perSecond), right, y(p.perSecond))
	d.Text("mark", right, y(p.perSecond)-6, fmt.Sprintf(p.limit, p.perSecond))
	d.Line("base", left, base, right, base)
	d.Text("tick", left-20, y(s.high)+4, fmt.Sprint(s.high))
	d.Text("tick", left-20, base+4, "0")
	d.Text("tick", (left+right)/2, base+38, p.second)
}
