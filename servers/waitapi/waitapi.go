package waitapi

import (
	"context"
	"net/http"

	"github.com/fleetthrottle/throttle/internal/problem"
)

// A Handler serves the waiting API. It is safe for concurrent use.
type Handler struct{ permits *table }

// New returns a handler.
func New(c Config) (*Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}

	c.setDefaults()
	return &Handler{newTable(c)}, nil
}

// Close refuses all callers, those that wait too, and releases all permits: what is in flight
// under them counts no more. It releases 64 at a time, and returns when no caller waits and all are
// released. If ctx ends before, Close returns the error of ctx at once: a permit that was not released counts
// until its lease in the store ends, as that of a process that died. Close may be called more than once.
// A handler that is no longer used needs no Close if its permits may last until they expire.
func (h *Handler) Close(ctx context.Context) error { return h.permits.close(ctx) }

// Serves reports whether a path is one of the waiting API.
func (h *Handler) Serves(path string) bool {
	switch path {
	case "/v1/acquire", "/v1/release", "/v1/settle", "/v1/penalize", "/v1/openapi.yaml":
		return true
	}
	return false
}

// ServeHTTP implements [http.Handler]. It serves paths under /v1/.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var serve func(http.ResponseWriter, *http.Request) *problem.Problem
	allow, allowed := "POST", r.Method == http.MethodPost

	switch r.URL.Path {
	case "/v1/acquire":
		serve = h.permits.acquire
	case "/v1/release":
		serve = h.permits.release
	case "/v1/settle":
		serve = h.permits.settle
	case "/v1/penalize":
		serve = h.permits.penalize
	case "/v1/openapi.yaml":
		serve = serveDescription
		allow, allowed = "GET, HEAD", r.Method == http.MethodGet || r.Method == http.MethodHead
	default:
		problem.New(http.StatusNotFound, "there is /v1/acquire, /v1/release, /v1/settle, /v1/penalize and /v1/openapi.yaml").Write(w)
		return
	}

	if !allowed {
		w.Header().Set("Allow", allow)
		problem.New(http.StatusMethodNotAllowed, "the method is not "+allow).Write(w)
		return
	}

	if p := serve(w, r); p != nil {
		p.Write(w)
	}
}
