package browsertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// TestFleetIsWatched: a fleet runs, is banned, paused and resumed while somebody watches the page.
func TestFleetIsWatched(t *testing.T) {
	s := onFleet(t)
	p := s.open("", View{})
	s.awaitText(p, "#nodes", "mailer")
	s.awaitText(p, "#budgets", "warehouse trial")
	s.awaitText(p, "#verdict", "Nothing is closed")
	s.usable(p)

	warehouse, err := s.limiters.Limiter("warehouse")
	must(t, err)
	must(t, warehouse.Pause(t.Context(), "", time.Hour))
	s.awaitText(p, "#verdict", "warehouse is closed")
	s.awaitText(p, "#rows", "paused by the program")
	s.awaitText(p, "#rows", "opens at")

	target, err := s.fleet.Find(t.Context(), fleet.Query{Name: "openai requests"})
	must(t, err)
	const reason = `the bill <img src=x onerror=alert(1)> & "more"`
	must(t, s.fleet.Pause(t.Context(), target, time.Hour, "ann", reason))
	s.awaitText(p, "#verdict", "2 budgets are closed")
	s.awaitText(p, "#rows", reason)
	s.awaitText(p, "#acts", reason)
	s.usable(p)

	must(t, s.fleet.Resume(t.Context(), target, "bob", "it is paid"))
	s.awaitText(p, "#verdict", "warehouse is closed")
	s.awaitText(p, "#acts", "it is paid")
	must(t, warehouse.Resume(t.Context(), ""))
	s.awaitText(p, "#verdict", "Nothing is closed")
}

// TestAllFits: nothing is cut off, and nothing is beside the page, from a phone to a wall.
func TestAllFits(t *testing.T) {
	s := onProcess(t)
	for _, v := range []View{{Width: 360, Height: 740}, {Width: 768, Height: 1024}, {Width: 3840, Height: 2160}} {
		t.Run(fmt.Sprint(v.Width), func(t *testing.T) {
			s := &stage{t: t, url: s.url}
			p := s.open("", v)
			s.awaitText(p, "#budgets", "dingtalk address")
			s.openDetails(p)
			wide, err := Value[int](p, "document.documentElement.scrollWidth")
			must(t, err)
			if wide > v.Width {
				t.Errorf("the page is %d pixels wide", wide)
			}
			s.usable(p)
		})
	}
}

// openDetails opens the details of the first budget.
func (s *stage) openDetails(p *Page) {
	s.t.Helper()
	_, err := Value[bool](p, `document.querySelector("button.row").click(), true`)
	must(s.t, err)
	s.await(p, `document.querySelector("button.row[aria-expanded=true]") !== null`)
}

// TestChinese: the page is in the language that the address asks for.
func TestChinese(t *testing.T) {
	s := onProcess(t)
	p := s.open("?lang=zh", View{})
	s.awaitText(p, "#verdict", "没有限额被暂停")
	s.awaitText(p, "#budgets", "dingtalk address")
	s.openDetails(p)
	s.usable(p)
	language, err := Value[string](p, "document.documentElement.lang")
	must(t, err)
	if language != "zh-CN" {
		t.Error(language)
	}
}

// TestServerComesBack: the page says that its server does not answer, and goes on by itself when it does.
func TestServerComesBack(t *testing.T) {
	s := onProcess(t)
	p := s.open("", View{})
	s.awaitText(p, "#budgets", "dingtalk address")
	s.away.Store(true)
	s.cut()
	s.awaitText(p, "#verdict", "does not answer")
	s.awaitText(p, "#live", "as of")
	s.usable(p)
	s.away.Store(false)
	s.await(p, `document.querySelector("#live").dataset.state === "live"`)
	p.Forgive("net::ERR_")
}

// TestKeyboardAlone: an operator without a mouse unlocks the page, pauses a budget and resumes it.
func TestKeyboardAlone(t *testing.T) {
	s := onProcess(t)
	p := s.open("", View{})
	s.awaitText(p, "#budgets", "warehouse")

	s.tabTo(p, "#lock")
	s.press(p, kb.Enter)
	s.await(p, `document.querySelector("dialog#token").open`)
	s.usable(p)
	s.press(p, "no token", kb.Enter)
	s.awaitText(p, "#token .wrong", "not the token")
	p.Forgive("401") // the browser tells of the refusal
	s.press(p, kb.Escape)
	s.await(p, `!document.querySelector("dialog#token").open && document.activeElement.id === "lock"`)
	s.press(p, kb.Enter)
	s.await(p, `document.querySelector("dialog#token").open`)
	s.press(p, token, kb.Enter)
	s.await(p, `!document.querySelector("dialog#token").open`)
	s.awaitText(p, "#lock", "Lock")

	s.tabTo(p, "button.row")
	s.press(p, kb.Enter)
	s.tabToText(p, "Pause …")
	s.press(p, kb.Enter)
	s.await(p, `document.querySelector("dialog#order").open`)
	s.usable(p)
	s.press(p, "the shop moves", kb.Tab, "ann", kb.Enter)
	s.awaitText(p, "#verdict", "is closed")
	s.awaitText(p, "#rows", "paused by ann: the shop moves")

	s.tabToText(p, "Resume …")
	s.press(p, kb.Enter)
	s.await(p, `document.querySelector("dialog#order").open`)
	s.press(p, "it has moved", kb.Enter)
	s.awaitText(p, "#verdict", "Nothing is closed")
	s.awaitText(p, "#acts", "it has moved")
}

// quote returns a text as JavaScript has it.
func quote(text string) string { return strconv.Quote(text) }

// press types texts and keys.
func (s *stage) press(p *Page, keys ...string) {
	s.t.Helper()
	for _, k := range keys {
		must(s.t, p.Do(chromedp.KeyEvent(k)))
	}
}

// tabTo presses Tab until an element that a selector names has the focus.
func (s *stage) tabTo(p *Page, selector string) {
	s.t.Helper()
	s.tabUntil(p, "document.activeElement.matches("+quote(selector)+")")
}

// tabToText presses Tab until an element with a text has the focus.
func (s *stage) tabToText(p *Page, text string) {
	s.t.Helper()
	s.tabUntil(p, "document.activeElement.innerText?.trim() === "+quote(text))
}

// mostTabs is how often Tab is pressed at most to reach an element.
const mostTabs = 100

func (s *stage) tabUntil(p *Page, expression string) {
	s.t.Helper()
	for range mostTabs {
		s.press(p, kb.Tab)
		reached, err := Value[bool](p, expression)
		must(s.t, err)
		if reached {
			return
		}
	}
	s.t.Fatalf("no number of tabs up to %d makes true: %s", mostTabs, expression)
}

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

// pictures is where the pictures of the pages of docs go; "": they are made and thrown away.
var pictures = flag.String("pictures", "", "write the pictures to this `folder`, after two minutes")

// TestPictures takes pictures of a fleet of which two budgets are closed. make pictures keeps them.
func TestPictures(t *testing.T) {
	folder := *pictures
	if folder == "" {
		folder = t.TempDir()
	}
	s := onFleet(t)
	p := s.open("", View{}) // a page that nobody looks at has no past
	s.awaitText(p, "#budgets", "warehouse trial")
	if *pictures != "" {
		time.Sleep(2 * time.Minute) // the charts show so much
	}
	warehouse, err := s.limiters.Limiter("warehouse")
	must(t, err)
	must(t, warehouse.Pause(t.Context(), "", 5*time.Minute))
	target, err := s.fleet.Find(t.Context(), fleet.Query{Name: "openai requests"})
	must(t, err)
	must(t, s.fleet.Pause(t.Context(), target, time.Hour, "ann", "the invoice of November is being checked"))
	s.awaitText(p, "#acts", "invoice")
	if *pictures != "" {
		time.Sleep(15 * time.Second) // the charts show since when
	}
	for _, picture := range []struct {
		name, query string
		view        View
		opened      bool // the details of the budget that most wait for
	}{
		{"dashboard.png", "", desk, false},
		{"dashboard-budget.png", "", desk, true},
		{"dashboard-dark.png", "", View{desk.Width, desk.Height, true}, false},
		{"dashboard-phone.png", "", View{Width: 360, Height: 740}, false},
		{"dashboard.zh.png", "?lang=zh", desk, false},
	} {
		p := s.open(picture.query, picture.view)
		s.await(p, `document.querySelector("#nodes tbody tr") !== null`)
		if picture.opened {
			s.await(p, `document.querySelector(".line[data-kind=waits] button.row")?.click() || document.querySelector("button.row[aria-expanded=true]") !== null`)
		}
		s.take(p, filepath.Join(folder, picture.name), picture.view)
	}
}

// desk is what most pictures show.
var desk = View{Width: 1280, Height: 860}

// take keeps a picture of the page.
func (s *stage) take(p *Page, path string, v View) {
	s.t.Helper()
	data, err := p.Picture()
	must(s.t, err)
	shown, err := png.DecodeConfig(bytes.NewReader(data))
	must(s.t, err)
	if shown.Width != v.Width || shown.Height != v.Height {
		s.t.Errorf("%s has %d by %d pixels", path, shown.Width, shown.Height)
	}
	must(s.t, os.WriteFile(path, data, 0o644))
}
