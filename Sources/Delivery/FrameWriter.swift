import Bytes
import Change
import Diagnostics
import Net
import Protocol
import WebSocket

/// Where bodies and frames are written and handed to the loop.
struct FrameWriter: ~Copyable {
    private let encoder: ChangeEncoder
    private let deflater: Deflater?
    /// The bodies of the change at hand, one for each view that was needed.
    private var bodies = ByteWriter(capacity: 64 << 10)
    private var frame = ByteWriter(capacity: 64 << 10)
    private var bodyNumber: UInt64 = 0

    init(maximumBodyBytes: Int, deflater: Deflater?) {
        encoder = ChangeEncoder(maximumBodyBytes: maximumBodyBytes)
        self.deflater = deflater
    }

    /// The bodies of the change before are done with.
    mutating func begin() {
        bodies.removeAll()
        bodies.shrink(to: Limits.keptWriterBytes)
        frame.shrink(to: Limits.keptWriterBytes)
    }

    /// Makes the body that a view has of the change, if it is not there yet.
    mutating func write(
        _ change: borrowing Change, _ relation: Relation, _ moment: ChangeRouter.Moment, _ index: UInt32,
        _ views: inout ViewTable
    ) throws(ByteError) {
        assert(moment.number != 0, "changes are counted from one")
        guard let known = views.views[index]?.change, known != moment.number else { return }
        guard let view = views.prepare(index, moment.fingerprint, relation) else { return }
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

    /// The frame around the body that a view has of the change at hand; made for the first who gets it.
    mutating func frame(
        _ envelope: UInt32, _ index: UInt32, compressed: Bool, _ views: inout ViewTable,
        _ envelopes: inout EnvelopeTable, on loop: SocketLoop
    ) -> FramePieces {
        guard let view = views.views[index] else { preconditionFailure("a frame of a view that is gone") }
        let number = view.bodyNumber
        precondition(view.body.upperBound <= bodies.count && !view.body.isEmpty, "a frame has the body of its own view")
        if let known = envelopes.pieces(envelope, for: number, compressed: compressed) { return known }
        let pieces = Self.pieces(
            bodies, view.body, view.bodyPiece, envelope, compressed: compressed, deflater, envelopes, &frame, on: loop)
        if let body = pieces.body { views.keep(body, of: index) }
        envelopes.keep(pieces, envelope, for: number, compressed: compressed)
        return pieces
    }

    /// Sends a body that waited. It takes the place of those of the change at hand.
    mutating func send(
        body: [UInt8], _ envelope: UInt32, _ recipient: Recipient, _ envelopes: inout EnvelopeTable, on loop: SocketLoop
    ) {
        assert(!body.isEmpty, "what waited has a body")
        bodies.removeAll()
        bodies.append(body)
        let pieces = Self.pieces(
            bodies, 0..<body.count, nil, envelope, compressed: recipient.wantsCompression, deflater, envelopes, &frame,
            on: loop)
        Self.send(pieces, to: recipient.connection, on: loop)
    }

    static func send(_ pieces: FramePieces, to connection: ConnectionID, on loop: SocketLoop) {
        loop.send(pieces.head, to: connection)
        if let body = pieces.body { loop.send(body, to: connection, continues: true) }
        if let tail = pieces.tail { loop.send(tail, to: connection, continues: true) }
    }

    // MARK: Frames

    private static func pieces(
        _ bodies: borrowing ByteWriter, _ place: Range<Int>, _ shared: Piece?, _ index: UInt32, compressed: Bool,
        _ deflater: Deflater?,
        _ envelopes: EnvelopeTable, _ frame: inout ByteWriter, on loop: SocketLoop
    ) -> FramePieces {
        guard let envelope = envelopes.entries[index]?.envelope else {
            preconditionFailure("a frame in an envelope that is gone")
        }
        let body = bodies.bytes.extracting(place)
        let size = envelope.byteCount(around: body.byteCount)
        frame.removeAll()
        if compressed, let deflater, size >= Limits.compressionThresholdBytes {
            return compressedPieces(body, envelope, deflater, &frame, on: loop)
        }
        FrameEncoder.appendHeader(.text, payloadBytes: size, to: &frame)
        frame.append(envelope.prefix)
        if body.byteCount <= Limits.sharedBodyThresholdBytes {
            frame.append(body)
            frame.append(envelope.suffix)
            return FramePieces(head: loop.share(frame.bytes))
        }
        let head = loop.share(frame.bytes)
        frame.removeAll()
        frame.append(envelope.suffix)
        return FramePieces(head: head, body: shared ?? loop.share(body), tail: loop.share(frame.bytes))
    }

    private static func compressedPieces(
        _ body: RawSpan, _ envelope: ChangeEnvelope, _ deflater: Deflater, _ frame: inout ByteWriter,
        on loop: SocketLoop
    ) -> FramePieces {
        var message = ByteWriter(capacity: envelope.byteCount(around: body.byteCount))
        message.append(envelope.prefix)
        message.append(body)
        message.append(envelope.suffix)
        FrameEncoder.append(
            .text, message.bytes, compressedBy: deflater, above: Limits.compressionThresholdBytes, to: &frame)
        return FramePieces(head: loop.share(frame.bytes))
    }
}
