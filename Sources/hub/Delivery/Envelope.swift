import Bytes
import Change
import Net
import Protocol

/// Key by which channels share an envelope, the text around a change's body. Channels with the same topic, form, ids
/// and view have the same key, and so share each frame.
struct EnvelopeKey: Hashable {
    var form: EnvelopeForm
    var topic: [UInt8]
    var ids: [UInt32]
    /// Operation that the event names, for channels that joined in the protocol's old form; nil for all others.
    var legacy: Operation?
    var view: UInt32

    var envelope: ChangeEnvelope {
        guard case .messages(let version) = form else { return recordEnvelope }
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        let topic = unsafe topic.span.bytes
        if let legacy { return ChangeEnvelope(version, topic: topic, legacy: legacy) }
        return ChangeEnvelope(version, topic: topic, ids: ids)
    }

    private var recordEnvelope: ChangeEnvelope {
        guard case .records(let form) = form, legacy == nil else { preconditionFailure("a feed joins in no old form") }
        return ChangeEnvelope(form)
    }
}

/// Frame as the loop shares it between connections: one piece, or three if the body is large enough to be shared alone.
struct FramePieces {
    var head: Piece
    var body: Piece?
    var tail: Piece?
}

/// Envelopes in use on one loop, each with its most recent frames.
struct EnvelopeTable {
    struct Entry {
        let key: EnvelopeKey
        let envelope: ChangeEnvelope
        var users: UInt32 = 1
        /// Number of the body that the frame `plain` contains.
        var plainBody: UInt64 = 0
        /// Number of the body that the frame `compressed` contains.
        var compressedBody: UInt64 = 0
        var plain: FramePieces?
        var compressed: FramePieces?
    }

    private(set) var entries = Slots<Entry>()
    private var byKey: [EnvelopeKey: UInt32] = [:]

    func envelope(_ index: UInt32) -> ChangeEnvelope {
        guard let entry = entries[index] else { preconditionFailure("a frame in an envelope that is gone") }
        return entry.envelope
    }

    /// Returns the index of the envelope with this key, for one more user. The first call makes the envelope.
    mutating func take(_ key: EnvelopeKey) -> UInt32 {
        if let known = byKey[key] {
            entries[known]?.users += 1
            return known
        }
        let index = entries.add(Entry(key: key, envelope: key.envelope))
        byKey[key] = index
        return index
    }

    /// Releases the envelope for one user. The last user's release removes it.
    mutating func release(_ index: UInt32) {
        guard let users = entries[index]?.users else { return }
        assert(users > 0, "an envelope is given back by who took it")
        if users > 1 {
            entries[index]?.users -= 1
        } else if let entry = entries.remove(index) {
            byKey[entry.key] = nil
        }
    }

    /// Returns the frame of this envelope and body; nil if it has not been made yet.
    func pieces(_ index: UInt32, for body: UInt64, compressed: Bool) -> FramePieces? {
        guard let entry = entries[index] else { return nil }
        if compressed { return entry.compressedBody == body ? entry.compressed : nil }
        return entry.plainBody == body ? entry.plain : nil
    }

    mutating func keep(_ pieces: FramePieces, _ index: UInt32, for body: UInt64, compressed: Bool) {
        assert(entries.contains(index) && body != 0, "a frame is of an envelope and a body that are there")
        if compressed {
            entries[index]?.compressed = pieces
            entries[index]?.compressedBody = body
        } else {
            entries[index]?.plain = pieces
            entries[index]?.plainBody = body
        }
    }
}
