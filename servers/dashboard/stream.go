package dashboard

import (
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

	to := &viewerStream{w, http.NewResponseController(w)}
	if to.send(fmt.Appendf(nil, "retry: %d\n\n", retryAfter.Milliseconds())) != nil {
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
			if to.send([]byte(": still here\n\n")) != nil {
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
func (s *sampler) tell(to *viewerStream, last *int64) (<-chan struct{}, error) {
	if *last != unseen {
		if frames, news, ok := s.after(*last); ok {
			for _, f := range frames {
				if err := to.send(f.text); err != nil {
					return nil, err
				}
				*last = f.number
			}
			return news, nil
		}
	}

	all, news := s.all()
	if all.text == nil {
		return news, nil
	}

	*last = all.number
	return news, to.send(all.text)
}

// A viewerStream sends events to one viewer. It keeps none of them: a thousand viewers share the bytes of a frame.
type viewerStream struct {
	to    http.ResponseWriter
	flush *http.ResponseController
}

// send sends a text. A viewer that takes none of it is given up after writeTime.
func (v *viewerStream) send(text []byte) error {
	// A server that knows no deadlines has none.
	_ = v.flush.SetWriteDeadline(time.Now().Add(writeTime))

	if _, err := v.to.Write(text); err != nil {
		return err
	}
	return v.flush.Flush()
}
