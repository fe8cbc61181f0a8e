package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A pull is one job of a fleet: each department is asked for the departments
// below and for its people.
type pull struct {
	fleet
	departments int
	token       string
	next        atomic.Int64 // which question comes next: two for each department

	mu     sync.Mutex
	found  map[string][]int // user ids, and in which departments each came
	lost   int              // calls that failed for good
	reason error            // why the first of them did
}

// run works until all is asked or the context ends.
func (p *pull) run(ctx context.Context, workers int, progress io.Writer) error {
	var login struct{ AccessToken string }
	credentials := map[string]string{"appKey": app, "appSecret": "secret"}
	if err := p.call(ctx, p.nodes[0], accessToken, credentials, &login); err != nil {
		return err
	}

	p.token = "?access_token=" + login.AccessToken
	done := make(chan struct{})
	var telling, working sync.WaitGroup
	telling.Go(func() { p.tell(progress, done) })

	for _, node := range p.nodes {
		for range workers {
			working.Go(func() { p.work(ctx, node) })
		}
	}

	working.Wait()
	close(done)
	telling.Wait()

	return nil
}

// tell prints every second how many people have come, if that has changed.
func (p *pull) tell(w io.Writer, done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	for last := 0; ; {
		select {
		case <-tick.C:
		case <-done:
			return
		}

		p.mu.Lock()
		people := len(p.found)
		p.mu.Unlock()

		if people != last {
			fmt.Fprintln(w, people, "people")
			last = people
		}
	}
}

// work is one worker.
func (p *pull) work(ctx context.Context, node *http.Client) {
	for ctx.Err() == nil {
		i := int(p.next.Add(1)) - 1
		if i >= 2*p.departments {
			return
		}

		if err := p.ask(ctx, node, i/2+1, i%2 == 0); err != nil {
			p.mu.Lock()
			p.lost++
			if p.reason == nil {
				p.reason = err
			}

			p.mu.Unlock()
		}
	}
}

// The APIs that a pull calls.
const (
	accessToken    = "/v1.0/oauth2/accessToken"
	departmentList = "/topapi/v2/department/listsub"
	userList       = "/topapi/v2/user/list"
)

// ask asks for the departments below one, or for its people.
func (p *pull) ask(ctx context.Context, node *http.Client, department int, below bool) error {
	if below {
		return p.call(ctx, node, departmentList+p.token, map[string]int{"dept_id": department}, new(any))
	}

	for more, cursor := true, 0; more; {
		var page struct {
			Result struct {
				More bool `json:"has_more"`
				Next int  `json:"next_cursor"`
				List []struct{ UserID string }
			}
		}

		in := map[string]int{"dept_id": department, "cursor": cursor, "size": 100}
		if err := p.call(ctx, node, userList+p.token, in, &page); err != nil {
			return err
		}

		p.mu.Lock()
		for _, person := range page.Result.List {
			p.found[person.UserID] = append(p.found[person.UserID], department)
		}

		p.mu.Unlock()
		more, cursor = page.Result.More, page.Result.Next
	}

	return nil
}

// call makes one call.
func (p *pull) call(ctx context.Context, node *http.Client, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := node.Do(req)
	if err != nil {
		return errors.Unwrap(err) // the client's own part of the error holds the URL, and with it the token
	}

	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}

	said := struct {
		ErrCode     int
		AccessToken string
	}{ErrCode: -1} // a ban has no code; a token comes without one
	if json.Unmarshal(answer, &said) != nil || said.ErrCode != 0 && said.AccessToken == "" {
		return fmt.Errorf("refused: %d %s", resp.StatusCode, answer)
	}

	return json.Unmarshal(answer, out)
}
