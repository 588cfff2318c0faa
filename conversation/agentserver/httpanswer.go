package agentserver

import (
	"encoding/json"
	"errors"
	"net/http"
)

// detail is the body of a 4xx answer whose detail is a text.
type detail struct {
	Detail string `json:"detail"`
}

// invalid is one entry of the list that a 422 answer holds. It never shows what
// was given, which may be a secret.
type invalid struct {
	Type string   `json:"type"`
	Loc  []string `json:"loc"`
	Msg  string   `json:"msg"`
}

// failure is the body of a 5xx answer.
type failure struct {
	Detail    string `json:"detail"`
	Exception string `json:"exception"`
	ErrorID   string `json:"error_id,omitempty"` // of an error that wasn't expected
}

// success is the body of an action's 200.
type success struct {
	Success bool `json:"success"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has gone
}

func answerNotFound(w http.ResponseWriter) {
	answer(w, http.StatusNotFound, detail{"Not Found"})
}

func answerInvalid(w http.ResponseWriter, problems ...invalid) {
	answer(w, http.StatusUnprocessableEntity, map[string][]invalid{"detail": problems})
}

// answerFailure answers 500. The causes of a failed refresh stay in the log.
func answerFailure(w http.ResponseWriter, err error) {
	body := failure{Detail: "Internal Server Error"}
	if refresh, ok := errors.AsType[*RefreshError](err); ok {
		body.Exception = refresh.exception()
	} else if errors.Is(err, ErrClosed) {
		body.Exception = "inactive_service"
	} else {
		body.ErrorID = newID().Hex()
	}
	answer(w, http.StatusInternalServerError, body)
}
