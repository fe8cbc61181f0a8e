package rowtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// A service has rows in its memory, and a handler that reads them and that compares and swaps. A group has one version.
type service struct {
	mu       sync.Mutex
	rows     map[string][]byte
	versions map[string]int // by group
}

// A message is what a client sends, and what it gets back.
type message struct {
	Group   string
	Keys    []string // of rows to read
	Rows    map[string][]byte
	Save    bool // the rows, if the version is the same
	Version int
	Now     time.Time
	Saved   bool
}

// ServeHTTP saves the rows of a message if it asks for that and has the group's version, and returns the rows of its keys.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Save && m.Version == s.versions[m.Group] {
		s.versions[m.Group]++
		for k, v := range m.Rows {
			s.rows[k] = v
		}
		m.Saved = true
	}
	m.Version, m.Rows = s.versions[m.Group], make(map[string][]byte)
	for _, k := range m.Keys {
		if v, ok := s.rows[k]; ok {
			m.Rows[k] = v
		}
	}
	m.Now = time.Now()
	_ = json.NewEncoder(w).Encode(&m)
}

// newService starts a service, which ends with the test. It returns its address, and a function that opens a Database of the service at an address.
func newService(t *testing.T) (address string, open func(t *testing.T, address string) rowstore.Database) {
	s := httptest.NewServer(&service{rows: make(map[string][]byte), versions: make(map[string]int)})
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), func(t *testing.T, address string) rowstore.Database {
		c := &client{url: "http://" + address, http: &http.Client{Transport: &http.Transport{}}}
		t.Cleanup(c.http.CloseIdleConnections)
		return c
	}
}

// A client is the Database of a service. It can make a mistake.
type client struct {
	url     string
	http    *http.Client
	mistake mistake
}

// Transact implements [rowstore.Database].
func (c *client) Transact(ctx context.Context, group string, keys []string, do func(rowstore.Tx) error) error {
	if c.mistake == ignoresContext {
		ctx = context.WithoutCancel(ctx)
	}
	if c.mistake == returnsEarly {
		inner := do
		do = func(tx rowstore.Tx) error {
			done := make(chan error, 1)
			go func() { done <- inner(tx) }()
			select {
			case err := <-done:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	rows := make(map[string][]byte)
	for ctx.Err() == nil {
		read, err := c.call(ctx, &message{Group: group, Keys: keys})
		if err != nil {
			return err
		}
		if c.mistake != keepsPuts {
			rows = make(map[string][]byte)
		}
		if err := do(&clientTx{client: c, ctx: ctx, read: read, put: rows}); err != nil || len(rows) == 0 {
			return err
		}
		saved, err := c.call(ctx, &message{Group: group, Rows: rows, Save: true, Version: read.Version})
		if err != nil && c.mistake == repeats && ctx.Err() == nil {
			continue
		}
		if err != nil || saved.Saved {
			return err
		}
	}
	return context.Cause(ctx)
}

// call makes one request. It is a POST, which net/http does not repeat when its answer is lost.
func (c *client) call(ctx context.Context, m *message) (*message, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(r)
	if c.mistake == saysNothingOfAway && err != nil {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", rowstore.ErrAway, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	got := new(message)
	if err := json.NewDecoder(answer.Body).Decode(got); err != nil {
		return nil, fmt.Errorf("%w: %w", rowstore.ErrAway, err)
	}
	return got, nil
}

// A clientTx is a transaction on what one call has read.
type clientTx struct {
	*client
	ctx  context.Context
	read *message
	put  map[string][]byte
}

func (tx *clientTx) Now() time.Time { return tx.read.Now }

// Get asks again for a row that was not known beforehand. If others have saved meanwhile, the version that is compared
// is still the first one, and the transaction is made again.
func (tx *clientTx) Get(keys ...string) ([][]byte, error) {
	got, err := tx.call(tx.ctx, &message{Group: tx.read.Group, Keys: keys})
	if err != nil {
		return nil, err
	}
	if tx.mistake == takesLaterVersion {
		tx.read.Version = got.Version
	}
	values := make([][]byte, len(keys))
	for i, k := range keys {
		values[i] = got.Rows[k]
	}
	return values, nil
}

func (tx *clientTx) Put(key string, value []byte, _ time.Duration) { tx.put[key] = value }
