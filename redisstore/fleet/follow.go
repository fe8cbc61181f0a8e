package fleet

import (
	"context"
	"fmt"
)

// File returns the text of the pushed file, which must not be changed; [ErrNothingPushed]
// if there is none. It reads the text only if it is another than the last time.
func (r *Reporter) File(ctx context.Context) ([]byte, error) {
	r.pulled.mu.Lock()
	defer r.pulled.mu.Unlock()

	id, err := r.fields(ctx, "id")
	if err != nil {
		return nil, err
	}
	if id[0] == r.pulled.id {
		return r.pulled.text, nil
	}

	v, err := r.fields(ctx, "id", "text")
	if err != nil {
		return nil, err
	}
	if len(v[1]) > MostText {
		return nil, fmt.Errorf("fleet: the pushed file is too long: %d bytes", len(v[1]))
	}

	r.pulled.id, r.pulled.text = v[0], []byte(v[1])
	return r.pulled.text, nil
}

// fields reads fields of the pushed file.
func (r *Reporter) fields(ctx context.Context, names ...string) (all []string, err error) {
	v, err := r.client.HMGet(ctx, r.keys.policies, names...).Result()
	if err != nil {
		return nil, storeError(r.conn.Error(err))
	}
	for _, field := range v {
		text, ok := field.(string)
		if !ok {
			return nil, ErrNothingPushed
		}
		all = append(all, text)
	}
	return all, nil
}

// ReportFile lets the reporter say which file of policies is in force. Package
// policyfile/pushed calls it.
func (r *Reporter) ReportFile(state func() FileState) {
	r.mu.Lock()
	r.file = state
	r.mu.Unlock()
	r.ReportSoon()
}

// ReportSoon makes the reporter report now, because something has changed; a second time in
// a second with the next report.
func (r *Reporter) ReportSoon() { r.notes.ask() }
