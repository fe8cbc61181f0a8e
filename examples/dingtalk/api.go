package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// The calls that a pull makes.
const (
	pathToken       = "/gettoken"
	pathDepartments = "/topapi/v2/department/listsub"
	pathPeople      = "/topapi/v2/user/list"
)

// pageSize is how many people user/list returns at most.
const pageSize = 100

// An api talks to DingTalk. It knows nothing of limits: its client does.
type api struct {
	client      *http.Client
	base        string // the URL of the old host
	key, secret string

	mu    sync.Mutex
	token string
	asked time.Time // when the token was asked for
}

// departments returns the departments directly below one.
func (a *api) departments(ctx context.Context, dept int64) ([]int64, error) {
	var out struct {
		Result []struct {
			ID int64 `json:"dept_id"`
		} `json:"result"`
	}
	if err := a.call(ctx, pathDepartments, map[string]any{"dept_id": dept}, &out); err != nil {
		return nil, err
	}
	ids := make([]int64, len(out.Result))
	for i, d := range out.Result {
		ids[i] = d.ID
	}
	return ids, nil
}

// people returns one page of a department's people and the cursor of the next
// page; 0 if there is none.
func (a *api) people(ctx context.Context, dept, cursor int64) (ids []string, next int64, err error) {
	var out struct {
		Result struct {
			More bool  `json:"has_more"`
			Next int64 `json:"next_cursor"`
			List []struct {
				ID string `json:"userid"`
			} `json:"list"`
		} `json:"result"`
	}
	in := map[string]any{"dept_id": dept, "cursor": cursor, "size": pageSize}
	if err := a.call(ctx, pathPeople, in, &out); err != nil {
		return nil, 0, err
	}
	for _, p := range out.Result.List {
		ids = append(ids, p.ID)
	}
	if out.Result.More {
		next = out.Result.Next
	}
	return ids, next, nil
}

// call sends a call that needs a token.
func (a *api) call(ctx context.Context, path string, in, out any) error {
	token, err := a.login(ctx)
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return a.send(ctx, http.MethodPost, path, url.Values{"access_token": {token}}, body, out)
}

// login returns the token. It asks once for all workers, and again after an
// hour; a token lives for two.
func (a *api) login(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != "" && time.Since(a.asked) < time.Hour {
		return a.token, nil
	}
	var out struct {
		Token string `json:"access_token"`
	}
	query := url.Values{"appkey": {a.key}, "appsecret": {a.secret}}
	if err := a.send(ctx, http.MethodGet, pathToken, query, nil, &out); err != nil {
		return "", err
	}
	a.token, a.asked = out.Token, time.Now()
	return a.token, nil
}

// send sends one request and decodes its answer.
func (a *api) send(ctx context.Context, method, path string, query url.Values, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.base+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: the base URL is not one", path)
	}
	req.Header.Set("Content-Type", "application/json")
	tripOf(ctx).sends(path)
	resp, err := a.client.Do(req)
	if err != nil {
		return withoutURL(path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if code := refusal(resp.StatusCode, answer); code != "" {
		return fmt.Errorf("%s: refused with %s", path, code)
	}
	return json.Unmarshal(answer, out)
}

// withoutURL takes the URL out of a client's error: DingTalk's holds tokens
// and secrets.
func withoutURL(path string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
