package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
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
