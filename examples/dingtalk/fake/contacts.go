package fake

import (
	"encoding/json"
	"net/http"
)

// maxPage is how many people one call of user/list returns at most.
const maxPage = 100

// listSub lists the departments directly below one.
func (s *Server) listSub(r *http.Request) answer {
	in := struct {
		Dept int64 `json:"dept_id"`
	}{Dept: Root} // a call without a department means the root
	_ = json.NewDecoder(r.Body).Decode(&in) // and so does a call without a body
	d := s.company.departments[in.Dept]
	if d == nil {
		return wrapped("60003", "部门不存在")
	}
	type sub struct {
		ID     int64  `json:"dept_id"`
		Name   string `json:"name"`
		Parent int64  `json:"parent_id"`
	}
	subs := make([]sub, 0, len(d.children))
	for _, child := range d.children {
		subs = append(subs, sub{child.ID, child.Name, child.Parent})
	}
	return result(subs)
}

// user is a person as the old family shows them.
type user struct {
	UserID      string  `json:"userid"`
	UnionID     string  `json:"unionid"`
	Name        string  `json:"name"`
	Departments []int64 `json:"dept_id_list"`
}

func (p *person) user() user {
	return user{p.UserID, p.UnionID, p.Name, []int64{p.Department}}
}

// listUsers lists the people of one department, page by page.
func (s *Server) listUsers(r *http.Request) answer {
	var in struct {
		Dept   int64 `json:"dept_id"`
		Cursor int   `json:"cursor"`
		Size   int   `json:"size"`
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	if err != nil || in.Size < 1 || in.Size > maxPage || in.Cursor < 0 {
		return wrapped("40035", "不合法的参数")
	}
	d := s.company.departments[in.Dept]
	if d == nil {
		return wrapped("60003", "部门不存在")
	}
	type page struct {
		HasMore bool   `json:"has_more"`
		Next    int    `json:"next_cursor,omitempty"`
		List    []user `json:"list"`
	}
	from := min(in.Cursor, len(d.people))
	to := min(from+in.Size, len(d.people))
	out := page{List: make([]user, 0, to-from)}
	for _, p := range d.people[from:to] {
		out.List = append(out.List, p.user())
	}
	if to < len(d.people) {
		out.HasMore, out.Next = true, to
	}
	return result(out)
}

// getUser shows one person.
func (s *Server) getUser(r *http.Request) answer {
	var in struct {
		UserID string `json:"userid"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in) // nobody has the empty id
	p := s.company.people[in.UserID]
	if p == nil {
		return wrapped("60121", "找不到该用户")
	}
	return result(p.user())
}

// contact shows one person the way the new family does.
func (s *Server) contact(r *http.Request) answer {
	p := s.company.byUnion[r.PathValue("unionId")]
	if p == nil {
		return gateway(http.StatusNotFound, "user.not.found", "找不到该用户")
	}
	return ok200(map[string]any{"nick": p.Name, "unionId": p.UnionID})
}
