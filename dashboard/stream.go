package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	heartbeat  = 15 * time.Second // the longest silence of a stream
	writeTime  = 10 * time.Second // how long a viewer may take for what it is sent
	retryAfter = 2 * time.Second  // how soon a viewer that lost its stream asks again
)

// stream sends what changes, as server-sent events: an event state with all there is, then an event change
// with a merge patch for each reading. A viewer that says which event it saw last gets those since.
func (s *sampler) stream(w http.ResponseWriter, r *http.Request) {
	if !s.join() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	head := w.Header()
	head.Set("Content-Type", "text/event-stream; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no")
	to := &events{to: w, flush: http.NewResponseController(w)}
	fmt.Fprintf(&to.text, "retry: %d\n\n", retryAfter.Milliseconds())
	if to.send() != nil {
		return
	}
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	for last := s.lastSeen(cmp.Or(r.Header.Get("Last-Event-ID"), r.FormValue("last"))); ; {
		news, err := s.tell(to, &last)
		if err != nil {
			return
		}
		beat.Reset(heartbeat)
		select {
		case <-news:
		case <-beat.C:
			to.text.WriteString(": still here\n\n")
			if to.send() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// unseen is the number of the last frame of a viewer that has seen none.
const unseen = -1

// lastSeen returns the number of the frame with an id; unseen if it is none of this sampler.
func (s *sampler) lastSeen(id string) int64 {
	epoch, text, _ := strings.Cut(id, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || epoch != s.epoch {
		return unseen
	}
	return number
}

// tell sends a viewer what it has not seen, and sets last. It returns what is closed when there is more.
func (s *sampler) tell(to *events, last *int64) (<-chan struct{}, error) {
	if *last != unseen {
		if frames, news, ok := s.after(*last); ok {
			for _, f := range frames {
				to.add("change", s.epoch, f.number, f.patch)
				*last = f.number
			}
			return news, to.send()
		}
	}
	text, number, news := s.whole()
	if text == nil {
		return news, nil
	}
	*last = number
	to.add("state", s.epoch, number, text)
	return news, to.send()
}

// events write server-sent events to one viewer.
type events struct {
	to    http.ResponseWriter
	flush *http.ResponseController
	text  bytes.Buffer // is not sent yet
}

// add adds an event, whose data is one line.
func (e *events) add(kind, epoch string, number int64, data []byte) {
	fmt.Fprintf(&e.text, "event: %s\nid: %s-%d\ndata: %s\n\n", kind, epoch, number, data)
}

// send sends what was added. A viewer that takes none of it is given up after writeTime.
func (e *events) send() error {
	if e.text.Len() == 0 {
		return nil
	}
	// A server that knows no deadlines has none.
	_ = e.flush.SetWriteDeadline(time.Now().Add(writeTime))
	_, err := e.text.WriteTo(e.to)
	if err != nil {
		return err
	}
	return e.flush.Flush()
}
