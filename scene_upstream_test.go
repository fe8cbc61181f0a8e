package throttle_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A sceneUpstream answers as its scene says.
type sceneUpstream struct {
	stage   *stage
	mu      sync.Mutex
	answers map[string][]sceneAnswer // by path; "": all others
}

type sceneAnswer struct {
	status               int
	header               []string
	body                 string
	times                int           // how often it is given before the next one
	until                time.Duration // it is given to requests that come earlier
	takes, dials, writes time.Duration
	connects             bool // it tells of its connection
	reused, fails        bool
	broken               string // what became of a first connection: "unused" or "written", or of the first two: "twice"
	reads, closes        bool   // it touches the body before it is connected
	goesOn               string // though it was stopped: "writing" or "answering"
}

// parseUpstream reads answers, with "|" between them. The last one is that of all others.
func parseUpstream(head, text string, w *words) func(*sceneUpstream) {
	_, path, _ := strings.Cut(head, " ")
	var all []sceneAnswer
	for _, one := range strings.Split(text, "|") {
		w.list = strings.Fields(one)
		a := sceneAnswer{times: 1}
		if a.fails = w.is("fails"); !a.fails {
			status := w.next()
			var err error
			if a.status, err = strconv.Atoi(status); err != nil {
				w.fail("%q is no status", status)
				w.list = nil
			}
		}
		for w.more() {
			switch word := w.next(); word {
			case "times":
				a.times = w.number()
			case "until":
				a.until = w.duration()
			case "takes":
				a.takes = w.duration()
			case "dials":
				a.connects, a.dials = true, w.duration()
			case "writes":
				a.writes = w.duration()
			case "reused":
				a.reused = true
			case "reads":
				a.reads = true
			case "closes":
				a.closes = true
			case "goes-on":
				a.goesOn = w.next()
			case "broken":
				a.broken = w.next()
			default:
				name, value, ok := strings.Cut(word, "=")
				if value = strings.ReplaceAll(value, "_", " "); !ok {
					w.fail("an answer has no %q", word)
				} else if name == "body" {
					a.body = value
				} else {
					a.header = append(a.header, name, value)
				}
			}
		}
		all = append(all, a)
	}
	return func(u *sceneUpstream) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.answers == nil {
			u.answers = map[string][]sceneAnswer{}
		}
		u.answers[path] = all
	}
}

// next returns the next answer.
func (u *sceneUpstream) next(r *http.Request) sceneAnswer {
	u.mu.Lock()
	defer u.mu.Unlock()
	path := r.URL.Path
	if u.answers[path] == nil {
		path = ""
	}
	list := u.answers[path]
	for len(list) > 1 && list[0].until > 0 && list[0].until <= u.stage.now() {
		list = list[1:]
	}
	if len(list) == 0 {
		return sceneAnswer{status: 200}
	}
	a := list[0]
	if list[0].until == 0 && len(list) > 1 {
		if list[0].times--; list[0].times == 0 {
			list = list[1:]
		}
	}
	u.answers[path] = list
	return a
}

func (u *sceneUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	c, a := callerOf(r.Context()), u.next(r)
	if r.Body != nil {
		defer r.Body.Close()
	}
	c.sent, c.answer = true, a.body
	u.stage.note("sent", c, "sent")
	trace := httptrace.ContextClientTrace(r.Context())
	switch {
	case a.reads:
		_, _ = r.Body.Read(make([]byte, 1))
	case a.closes:
		_ = r.Body.Close()
	case a.broken != "":
		trace.GotConn(httptrace.GotConnInfo{})
		if a.broken != "unused" {
			trace.WroteHeaders()
			u.stage.note("wrote", c, "wrote")
		}
		if a.broken == "twice" {
			trace.GotConn(httptrace.GotConnInfo{})
		}
	}
	if a.goesOn != "" {
		u.stage.store.foreign = true // what may have arrived is charged, and waits for nobody
	}
	if a.connects {
		if err := u.connect(r, a); err != nil && a.goesOn == "" {
			u.stage.note("sent", c, "stopped")
			return nil, err
		} else if err != nil && a.goesOn == "writing" {
			trace.WroteHeaders()
			return nil, errors.New("no answer")
		}
		time.Sleep(a.writes)
	}
	if a.goesOn == "" {
		if err := u.write(r, c, a); err != nil {
			return nil, err
		}
	}
	header := slices.Clone(a.header)
	if at := slices.Index(header, "Date"); at >= 0 {
		if ahead, err := time.ParseDuration(header[at+1]); err == nil { // a clock that is ahead
			header[at+1] = time.Now().Add(ahead).UTC().Format(http.TimeFormat)
		}
	}
	time.Sleep(a.takes)
	if a.fails {
		return nil, errors.New("the upstream fails")
	}
	return answer(a.status, a.body, header...)(r)
}

// connect dials and tells of the connection.
func (u *sceneUpstream) connect(r *http.Request, a sceneAnswer) error {
	if a.dials > 0 {
		select {
		case <-time.After(a.dials):
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{Reused: a.reused})
	return r.Context().Err()
}

// write reads the body, and tells that the request was written if it tells anything.
func (u *sceneUpstream) write(r *http.Request, c *caller, a sceneAnswer) error {
	text := "wrote"
	if r.Body != nil && !a.closes {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		text += " " + string(body)
	}
	if u.stage.started(c); a.connects {
		httptrace.ContextClientTrace(r.Context()).WroteHeaders()
		u.stage.note("wrote", c, "%s", text)
	} else if r.Body != nil {
		u.stage.note("wrote", c, "%s", text)
	}
	return nil
}
