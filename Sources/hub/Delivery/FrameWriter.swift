import Bytes
import Change
import Diagnostics
import Net
import Protocol
import WebSocket

/// Writer of change bodies and of the frames around them.
struct FrameWriter: ~Copyable {
    private let encoder: ChangeEncoder
    /// Bodies of the current change, one for each view in use.
    private var bodies = ByteWriter(capacity: 64 << 10)
    private var framer: BodyFramer
    private var bodyNumber: UInt64 = 0

    init(maximumBodyBytes: Int, deflater: Deflater?) {
        encoder = ChangeEncoder(maximumBodyBytes: maximumBodyBytes)
        framer = BodyFramer(deflater: deflater)
    }

    /// Begins a change: discards the bodies of the previous one.
    mutating func begin() {
        bodies.removeAll()
        bodies.shrink(to: Limits.keptWriterBytes)
        framer.shrink()
    }

    /// Writes the body of the change in a view, unless it has been written already.
    mutating func write(
        _ readable: borrowing ReadableChange, _ moment: ChangeMoment, _ index: UInt32,
        _ views: inout ViewTable
    ) throws(ByteError) {
        assert(moment.number != 0, "changes are counted from one")
        guard let known = views.views[index]?.change, known != moment.number else { return }
        let change = readable.change
        guard let view = views.prepare(index, change.relation, readable.relation) else { return }
        let start = bodies.count
        switch views.views[index]?.key.shape {
        case .refused(let refusal)? where change.operation != .delete:
            encoder.append(refusal, of: change.operation, view, commitTime: moment.commitTime, to: &bodies)
        case .departures?:
            try encoder.append(departure: change, view, commitTime: moment.commitTime, to: &bodies)
        default:
            try encoder.append(change, view, commitTime: moment.commitTime, to: &bodies)
        }
        assert(bodies.count > start, "a body has bytes")
        bodyNumber += 1
        views.keep(body: start..<bodies.count, number: bodyNumber, of: index, change: moment.number)
    }

    func copyOfBody(_ view: UInt32, _ views: ViewTable) -> [UInt8] {
        guard let body = views.views[view]?.body else { return [] }
        return bodies.bytes.extracting(body).copied()
    }

    /// Returns the frame around the view's body of the current change. The first call for an envelope makes the frame.
    mutating func frame(
        _ envelope: UInt32, _ index: UInt32, compressed: Bool, _ views: inout ViewTable,
        _ envelopes: inout EnvelopeTable, on sink: any FrameSink
    ) -> FramePieces {
        // A copy of the view would count its references, so each field is read alone.
        guard let body = views.views[index]?.body, let number = views.views[index]?.bodyNumber else {
            preconditionFailure("a frame of a view that is gone")
        }
        precondition(body.upperBound <= bodies.count && !body.isEmpty, "a frame has the body of its own view")
        if let known = envelopes.pieces(envelope, for: number, compressed: compressed) { return known }
        let pieces = framer.frame(
            body, of: bodies, shared: views.views[index]?.bodyPiece, envelopes.envelope(envelope),
            compressed: compressed, on: sink)
        if let body = pieces.body { views.keep(body, of: index) }
        envelopes.keep(pieces, envelope, for: number, compressed: compressed)
        return pieces
    }

    /// Sends the view's body of the current change to one recipient, in an envelope that only this recipient uses.
    mutating func send(
        _ index: UInt32, _ views: borrowing ViewTable, in envelope: ChangeEnvelope, to recipient: Recipient,
        on sink: any FrameSink
    ) {
        guard let view = views.views[index] else { preconditionFailure("a frame of a view that is gone") }
        let pieces = framer.frame(
            view.body, of: bodies, shared: view.bodyPiece, envelope, compressed: recipient.wantsCompression, on: sink)
        Self.send(pieces, to: recipient.connection, on: sink)
    }

    /// Sends a body that waited for an answer of PostgreSQL. Discards the bodies of the current change.
    mutating func send(
        body: [UInt8], in envelope: ChangeEnvelope, to recipient: Recipient, on sink: any FrameSink
    ) {
        assert(!body.isEmpty, "what waited has a body")
        bodies.removeAll()
        bodies.append(body)
        let pieces = framer.frame(
            0..<body.count, of: bodies, shared: nil, envelope, compressed: recipient.wantsCompression, on: sink)
        Self.send(pieces, to: recipient.connection, on: sink)
    }

    static func send(_ pieces: FramePieces, to connection: ConnectionID, on sink: any FrameSink) {
        sink.send(pieces.head, to: connection, continues: false)
        if let body = pieces.body { sink.send(body, to: connection, continues: true) }
        if let tail = pieces.tail { sink.send(tail, to: connection, continues: true) }
    }
}

/// Builder of the frames around bodies.
struct BodyFramer: ~Copyable {
    private let deflater: Deflater?
    private var frame = ByteWriter(capacity: 64 << 10)

    init(deflater: Deflater?) { self.deflater = deflater }

    mutating func shrink() { frame.shrink(to: Limits.keptWriterBytes) }

    /// Returns the frame around the body that lies at `place` in `bodies`. `shared` is the same body if the loop
    /// already stores it for sharing.
    mutating func frame(
        _ place: Range<Int>, of bodies: borrowing ByteWriter, shared: Piece?, _ envelope: ChangeEnvelope,
        compressed: Bool, on sink: any FrameSink
    ) -> FramePieces {
        let body = bodies.bytes.extracting(place)
        let size = envelope.byteCount(around: body.byteCount)
        frame.removeAll()
        if let feed = envelope.feed { return record(body, envelope, feed, size, on: sink) }
        if compressed, let deflater, size >= Limits.compressionThresholdBytes {
            return Self.compressed(body, envelope, deflater, &frame, on: sink)
        }
        FrameEncoder.appendHeader(.text, payloadBytes: size, to: &frame)
        frame.append(envelope.prefix)
        if body.byteCount <= Limits.sharedBodyThresholdBytes {
            frame.append(body)
            envelope.appendEnd(to: &frame)
            return FramePieces(head: sink.share(frame.bytes))
        }
        let head = sink.share(frame.bytes)
        frame.removeAll()
        envelope.appendEnd(to: &frame)
        return FramePieces(head: head, body: shared ?? sink.share(body), tail: sink.share(frame.bytes))
    }

    private mutating func record(
        _ body: RawSpan, _ envelope: ChangeEnvelope, _ feed: FeedForm, _ size: Int, on sink: any FrameSink
    ) -> FramePieces {
        feed.appendPieceHead(size, to: &frame)
        frame.append(envelope.prefix)
        FeedForm.appendOneLine(body, to: &frame)
        envelope.appendEnd(to: &frame)
        feed.appendPieceEnd(to: &frame)
        return FramePieces(head: sink.share(frame.bytes))
    }

    private static func compressed(
        _ body: RawSpan, _ envelope: ChangeEnvelope, _ deflater: Deflater, _ frame: inout ByteWriter,
        on sink: any FrameSink
    ) -> FramePieces {
        var message = ByteWriter(capacity: envelope.byteCount(around: body.byteCount))
        message.append(envelope.prefix)
        message.append(body)
        envelope.appendEnd(to: &message)
        FrameEncoder.append(
            .text, message.bytes, compressedBy: deflater, above: Limits.compressionThresholdBytes, to: &frame)
        return FramePieces(head: sink.share(frame.bytes))
    }
}
