package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A View says how a viewer sees a page. The zero View is a desktop in a light
// theme.
type View struct {
	Width, Height int  // in CSS pixels; 1280 and 900 by default
	Dark          bool // preferred colour scheme
}

// A Page is one tab of a browser. It records problems.
type Page struct {
	ctx    context.Context
	cancel context.CancelFunc
	host   string

	mu       sync.Mutex
	problems []string
}

// pageTime limits each step of a page.
const pageTime = 30 * time.Second

// Open opens an address in a new browser context, with its own cookies.
func (b *Browser) Open(address string, v View) (*Page, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	tab, endTab := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &Page{ctx: tab, cancel: endTab, host: u.Host}
	if err := p.begin(address, v); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// begin opens the tab, and the address in it.
func (p *Page) begin(address string, v View) error {
	if err := chromedp.Do(p.ctx); err != nil { // the tab exists from here on
		return err
	}

	// Listen before the first address is opened, or its problems would be missed.
	if err := chromedp.Listen(p.ctx, p.note); err != nil {
		return err
	}
	return p.Do(
		command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}),
		look(v), chromedp.Navigate(address))
}

// command returns the action that sends a command to the browser.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// theme sets the preferred colour scheme.
func theme(dark bool) chromedp.Action[chromedp.Void] {
	value := "light"
	if dark {
		value = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}}
	return command(emulation.SetEmulatedMedia, media)
}

// look sets the view of the page.
func look(v View) chromedp.Action[chromedp.Void] {
	if v.Width == 0 {
		v.Width, v.Height = 1280, 900
	}
	return chromedp.Steps(theme(v.Dark), chromedp.EmulateViewport(int64(v.Width), int64(v.Height)))
}

// Look changes the view of the page.
func (p *Page) Look(v View) error { return p.Do(look(v)) }

// Close closes the tab.
func (p *Page) Close() { p.cancel() }

// Do performs steps, within pageTime.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(p.ctx, pageTime)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// note records an event of the browser that is a problem of the page.
func (p *Page) note(event any) {
	var problem string
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		problem = "console: " + string(e.Type)
		for _, a := range e.Args {
			problem += " " + string(a.Value) + a.Description
		}

	case *runtime.EventExceptionThrown:
		problem = "exception: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		problem = fmt.Sprintf("log: %s %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)

	// The page must send no request to a foreign host.
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err == nil && (u.Host == p.host || u.Scheme == "data") {
			return
		}
		problem = "request to another host: " + e.Request.URL

	default:
		return
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, problem)
}

// Problems returns the problems since its last call: console messages,
// including violations of the content security policy, exceptions, and requests
// to foreign hosts.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.problems
	p.problems = nil
	return all
}

// Forgive forgets problems that contain a text.
func (p *Page) Forgive(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = slices.DeleteFunc(p.problems, func(problem string) bool { return strings.Contains(problem, text) })
}

// Await waits until a JavaScript expression is true.
func (p *Page) Await(expression string) error {
	ctx, cancel := context.WithTimeout(p.ctx, pageTime)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond)))
	if err != nil {
		return fmt.Errorf("await %s: %w; the page says: %s", expression, err, p.Text("body"))
	}
	return nil
}

// Text returns the text of an element, in one line.
func (p *Page) Text(selector string) string {
	ctx, cancel := context.WithTimeout(p.ctx, pageTime)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Text(selector))
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(text), " ")
}

// Value returns the value of a JavaScript expression.
func Value[T any](p *Page, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTime)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Picture returns a screenshot of the viewport, as PNG.
func (p *Page) Picture() ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTime)
	defer cancel()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}
