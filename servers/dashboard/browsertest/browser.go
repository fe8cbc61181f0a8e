package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/chromedp/chromedp"
)

// A Browser is a Chromium without windows.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts the browser that the environment variable CHROMIUM names, or else the one on PATH.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}

	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.NoSandbox, // the tests may run as root, and look at pages of their own alone
	)

	ctx, endBrowser := chromedp.NewContext(allocator)
	b := &Browser{ctx, []context.CancelFunc{endBrowser, endAllocator}}

	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		return nil, err
	}

	return b, nil
}

// find returns the path of the browser.
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
