package browsertest

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
