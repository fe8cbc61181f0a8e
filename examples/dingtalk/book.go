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
)

const workers = 64

// A book is as much of the address book as has come.
type book struct {
	client *http.Client
	url    string         // where DingTalk is
	isMine func(int) bool // for one of several processes: which departments below the first one it pulls; 0: the people of the first one, too
	token  string         // as DingTalk wants it in a URL
	mu     sync.Mutex
	people []string // their ids
}

// first is the department above all others.
const first = 1

// pull asks about all departments, from the first one down.
func (b *book) pull(ctx context.Context) error {
	var login struct {
		Token string `json:"access_token"`
	}
	if err := b.call(ctx, "/gettoken?appkey=dingabc&appsecret=secret", nil, &login); err != nil {
		return err
	}
	b.token = "?access_token=" + login.Token
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	free := make(chan struct{}, workers)
	var visit func(id int64)
	visit = func(id int64) {
		free <- struct{}{}
		below, err := b.department(ctx, id)
		<-free
		if err != nil {
			cancel(err) // the first error ends the work of all
		}
		for i, next := range below {
			if id != first || b.isMine(i) {
				working.Go(func() { visit(next) })
			}
		}
	}
	working.Go(func() { visit(first) })
	working.Wait()
	return context.Cause(ctx)
}

// department notes the people of a department, and returns the departments below.
func (b *book) department(ctx context.Context, id int64) (below []int64, err error) {
	var list struct {
		Result []struct {
			ID int64 `json:"dept_id"`
		}
	}
	err = b.call(ctx, "/topapi/v2/department/listsub"+b.token, map[string]int64{"dept_id": id}, &list)
	for _, d := range list.Result {
		below = append(below, d.ID)
	}
	for more, next := id != first || b.isMine(0), int64(0); more && err == nil; {
		var page struct {
			Result struct {
				More bool  `json:"has_more"`
				Next int64 `json:"next_cursor"`
				List []struct{ UserID string }
			}
		}
		err = b.call(ctx, "/topapi/v2/user/list"+b.token, map[string]int64{"dept_id": id, "cursor": next, "size": 100}, &page)
		b.mu.Lock()
		for _, user := range page.Result.List {
			b.people = append(b.people, user.UserID)
		}
		b.mu.Unlock()
		more, next = page.Result.More, page.Result.Next
	}
	return below, err
}

// call makes one call, as soon as all limits have room.
func (b *book) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // http.Client's own part of the error holds the URL, and with it the token
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	code := struct{ ErrCode int }{-1} // DingTalk refuses with status 200, and a ban has no code at all
	if err := json.Unmarshal(answer, &code); err != nil || code.ErrCode != 0 {
		return fmt.Errorf("DingTalk refused: %s", answer)
	}
	return json.Unmarshal(answer, out)
}
