package browsertest

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

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
