package downstream

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// BusyError is the database's refusal of a query: too many per second, too many
// at once, or a ban.
type BusyError struct{ RetryAfter time.Duration }

// Error implements error.
func (e *BusyError) Error() string {
	return fmt.Sprintf("the database is busy: try again after %v", e.RetryAfter)
}

// The driver is registered as "warehouse". Its data source name is the address of [Services].
func init() { sql.Register("warehouse", warehouse{}) }

type warehouse struct{}

// Open implements driver.Driver.
func (warehouse) Open(address string) (driver.Conn, error) { return conn(address), nil }

// A conn queries the database at its address. An http.Client keeps the connections.
type conn string

var pool = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

var errUnsupported = errors.New("warehouse: only queries are supported")

// Prepare implements driver.Conn.
func (conn) Prepare(string) (driver.Stmt, error) { return nil, errUnsupported }

// Begin implements driver.Conn.
func (conn) Begin() (driver.Tx, error) { return nil, errUnsupported }

// Close implements driver.Conn.
func (conn) Close() error { return nil }

// QueryContext implements driver.QueryerContext.
func (c conn) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	q := query{Statement: statement}
	for _, a := range args {
		// The statement has only integers.
		id, _ := a.Value.(int64)
		q.IDs = append(q.IDs, int(id))
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+string(c)+"/query", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := pool.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		r := new(rows)
		return r, json.NewDecoder(resp.Body).Decode(&r.left)
	case http.StatusTooManyRequests:
		// The services send whole seconds.
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, errors.Join(&BusyError{time.Duration(seconds) * time.Second}, err)
	}
	text, err := io.ReadAll(resp.Body)
	return nil, errors.Join(fmt.Errorf("warehouse: %s", text), err)
}

// rows are the unread rows of an answer.
type rows struct{ left []Shipment }

// Columns implements driver.Rows.
func (*rows) Columns() []string { return []string{"id", "carrier", "grams"} }

// Close implements driver.Rows.
func (*rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(row []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	row[0], row[1], row[2] = int64(r.left[0].ID), r.left[0].Carrier, int64(r.left[0].Grams)
	r.left = r.left[1:]
	return nil
}
