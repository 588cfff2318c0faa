package conversation

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// recordVersion is the version of stored records. A change that older readers would misread begins a new one.
//
// The records are those of encoding/json; this implementation reads a hundred thousand of them in a third of the time.
const recordVersion = 1

type conversationRecord struct {
	Version int `json:"v"`
	Conversation
}

type generationRecord struct {
	Version int `json:"v"`
	Generation
}

// EncodeConversation returns the record that stores keep of a conversation: JSON with a version, readable by people.
func EncodeConversation(c Conversation) ([]byte, error) {
	b, err := json.Marshal(conversationRecord{Version: recordVersion, Conversation: c}, jsonv1.DefaultOptionsV1())
	if err != nil {
		return nil, fmt.Errorf("encoding a conversation: %w", err)
	}
	return b, nil
}

// DecodeConversation reads a record of EncodeConversation.
func DecodeConversation(b []byte) (Conversation, error) {
	var r conversationRecord
	// All options of encoding/json would have each record looked through twice.
	err := json.Unmarshal(b, &r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsonv1.FormatDurationAsNano(true))
	if err != nil {
		return Conversation{}, fmt.Errorf("decoding a conversation: %w", err)
	}
	return r.Conversation, checkVersion(r.Version)
}

// DecodeAll reads records on all processors and returns what came of each, in their order. It is for stores, which have a page of records at
// hand when all conversations are asked for.
func DecodeAll[R any](records []R, decode func(R) (Conversation, error)) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		found := make([]Conversation, len(records))
		errs := make([]error, len(records))
		var wg sync.WaitGroup
		workers := runtime.GOMAXPROCS(0)
		for w := range workers {
			wg.Go(func() {
				for i := w * len(records) / workers; i < (w+1)*len(records)/workers; i++ {
					found[i], errs[i] = decode(records[i])
				}
			})
		}
		wg.Wait()
		for i := range records {
			if !yield(found[i], errs[i]) {
				return
			}
		}
	}
}

// EncodeGeneration returns the record that stores keep of a generation.
func EncodeGeneration(g Generation) ([]byte, error) {
	b, err := json.Marshal(generationRecord{Version: recordVersion, Generation: g}, jsonv1.DefaultOptionsV1())
	if err != nil {
		return nil, fmt.Errorf("encoding a generation: %w", err)
	}
	return b, nil
}

// DecodeGeneration reads a record of EncodeGeneration.
func DecodeGeneration(b []byte) (Generation, error) {
	var r generationRecord
	if err := json.Unmarshal(b, &r, jsonv1.DefaultOptionsV1()); err != nil {
		return Generation{}, fmt.Errorf("decoding a generation: %w", err)
	}
	return r.Generation, checkVersion(r.Version)
}

func checkVersion(v int) error {
	switch {
	case v < 1:
		return errors.New("stored record has no version: it is damaged")
	case v > recordVersion:
		return fmt.Errorf("stored record has version %d and this program knows %d: upgrade it", v, recordVersion)
	default:
		return nil
	}
}
