package browsertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// onMany returns a stage of one program with so many budgets, two of each policy, of which a few are in use all the time.
func onMany(t *testing.T, budgets int) *stage {
	var policies []throttle.Policy
	for i := range budgets / 2 {
		policies = append(policies, throttle.Policy{Name: fmt.Sprintf("policy-%03d", i), Match: fmt.Sprintf("h%d.example.com/p%d", i, i), Keyed: true, Limit: throttle.PerSecond(20)})
	}
	watched := dashboard.NewProcess(memstore.New())
	l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: watched, Policies: policies})
	must(t, err)
	for i := range budgets {
		_, err := l.Acquire(t.Context(), throttle.Demand{Policy: policies[i/2].Name, Key: fmt.Sprint(i)})
		must(t, err)
	}

	s := &stage{t: t, limiters: l}
	s.serve(dashboard.Config{Source: watched, Token: token, Title: "Many", Budgets: budgets})
	return s
}

// layouts returns how often the browser has computed the layout of a page.
func (p *Page) layouts() (n float64, err error) {
	err = p.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		r, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
		if err != nil {
			return err
		}
		for _, m := range r.Metrics {
			if m.Name == "LayoutCount" {
				n = m.Value
			}
		}
		return nil
	}))
	return n, err
}

// TestLayoutsDoNotGrow: a page that shows a reading has the browser compute one layout or a few, however many rows there are: none for
// each row.
func TestLayoutsDoNotGrow(t *testing.T) {
	const readings = 5
	for _, budgets := range []int{20, 180} {
		t.Run(fmt.Sprint(budgets), func(t *testing.T) {
			s := onMany(t, budgets)
			p := s.open("", View{Width: 1280, Height: 900})
			s.await(p, fmt.Sprintf(`document.querySelectorAll("button.row").length === %d`, budgets))
			must(t, p.Do(command(performance.Enable, performance.EnableParams{})))

			// A second stream counts the readings that the page gets.
			_, err := Value[bool](p, `window.readings = 0, new EventSource("events").addEventListener("change", () => window.readings++), true`)
			must(t, err)
			s.await(p, "window.readings >= 1")
			before, err := p.layouts()
			must(t, err)
			from, err := Value[int](p, "window.readings")
			must(t, err)
			s.await(p, fmt.Sprintf("window.readings >= %d", from+readings))
			after, err := p.layouts()
			must(t, err)
			to, err := Value[int](p, "window.readings")
			must(t, err)

			each := (after - before) / float64(to-from)
			t.Logf("%d budgets: %.1f layouts for each reading", budgets, each)
			if each > 6 {
				t.Errorf("%d budgets: %.1f layouts for each reading", budgets, each)
			}
		})
	}
}

// TestThousandBudgets: a thousand budgets of 500 policies are shown by the first two hundred and a button that shows the others, and the
// field finds any of them.
func TestThousandBudgets(t *testing.T) {
	s := onMany(t, 1000)
	p := s.open("", View{})
	s.await(p, `document.querySelectorAll("button.row").length >= 100`)
	s.awaitText(p, "#rows", "800 more of Budgets")
	rows, err := Value[int](p, `document.querySelectorAll("button.row").length`)
	must(t, err)
	if rows > 210 {
		t.Errorf("%d rows", rows)
	}

	// A key event of the protocol types its character whatever the page says, so "/" comes from the page.
	focused, err := Value[bool](p, `dispatchEvent(new KeyboardEvent("keydown", {key: "/", cancelable: true})), document.activeElement.id === "find"`)
	must(t, err)
	if !focused {
		t.Error("/ does not lead to the field")
	}
	s.press(p, "policy-499")
	s.awaitText(p, "#found", "2 of 1,000")
	s.await(p, `document.querySelectorAll("button.row").length === 2`)
	s.press(p, kb.Escape)
	s.awaitText(p, "#rows", "800 more of Budgets")
}
