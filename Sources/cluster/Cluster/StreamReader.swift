import Bytes
import Change

/// Batch of records, with the state of the log before it.
public struct StreamBatch: Sendable, Equatable {
    public var head: StreamHead
    /// Sequence of the batch's last message.
    public var sequence: UInt64
    public var bytes: [UInt8]

    public init(head: StreamHead, sequence: UInt64, bytes: [UInt8]) {
        self.head = head
        self.sequence = sequence
        self.bytes = bytes
    }
}

/// Place in the stream: everything up to a message has been read.
public struct StreamMark: Sendable, Equatable {
    public var log: ClusterLogID
    /// Sequence of the message; zero before the first.
    public var sequence: UInt64
    /// Chain of all messages up to it; nil if it is unknown, because the stream no longer has the messages before.
    public var chain: ClusterChain?
    /// Sequence of the message with which the tenure at this place began; zero if it is unknown.
    public var tenure: UInt64

    public init(log: ClusterLogID, sequence: UInt64 = 0, chain: ClusterChain? = ClusterChain(), tenure: UInt64 = 0) {
        self.log = log
        self.sequence = sequence
        self.chain = chain
        self.tenure = tenure
    }
}

/// Machine that reads the stream's messages in order, checks that none is missing, changed or foreign, and makes
/// batches of them.
///
/// A batch whose writer ended before its last slice never happened: its slices are dropped when another batch begins.
public struct StreamReader: Sendable {
    /// Place up to which everything was read, including slices of an unfinished batch.
    public private(set) var mark: StreamMark
    private var slices: (head: StreamHead, bytes: [UInt8])?

    /// Maximum size of a batch: what a sink collects before a flush, and the largest part that may come on top.
    static let maximumBatchBytes = Int(Int32.max)

    public init(from mark: StreamMark) { self.mark = mark }

    /// Sequence of the message that is read next.
    public var next: UInt64 { mark.sequence + 1 }
    /// True inside a batch whose last slice has not been read.
    public var isInsideBatch: Bool { slices != nil }

    /// Reads the next message. Returns the batch that it completes; nil if the batch goes on, or the message was read
    /// before.
    public mutating func take(_ sequence: UInt64, _ message: [UInt8]) throws(StreamDamage) -> StreamBatch? {
        if sequence < next { return nil }
        guard sequence == next else { throw .hole(expected: next, found: sequence) }
        let (head, chain) = try StreamMessage.decode(message, after: mark.chain)
        guard head.log == mark.log else { throw .otherLog(head.log) }
        guard head.tenure == sequence || mark.tenure == 0 || head.tenure == mark.tenure else {
            throw .staleTenure(found: head.tenure, current: mark.tenure)
        }
        mark.sequence = sequence
        mark.chain = chain
        mark.tenure = head.tenure
        return try join(head, sequence, message)
    }

    private mutating func join(
        _ head: StreamHead, _ sequence: UInt64, _ message: [UInt8]
    ) throws(StreamDamage) -> StreamBatch? {
        let slice = message[StreamHead.byteCount...]
        if head.isFirst {
            slices = (head, Array(slice))
        } else if slices != nil {
            slices?.bytes.append(contentsOf: slice)
        }
        // A reader that began inside a batch waits for the next one.
        guard let joined = slices else { return nil }
        guard joined.bytes.count <= Self.maximumBatchBytes else { throw .tooLarge }
        guard head.isLast else { return nil }
        slices = nil
        return StreamBatch(head: joined.head, sequence: sequence, bytes: joined.bytes)
    }
}

/// Machine that divides a batch into messages which follow a place of the stream.
public struct BatchSlices: ~Escapable {
    private let batch: RawSpan
    private var head: StreamHead
    private var chain: ClusterChain
    private var offset = 0

    /// Maximum size of a slice. With its head and NATS's headers, a message stays below the servers' default limit.
    public static let sliceBytes = 512 << 10

    @_lifetime(copy batch)
    public init(_ batch: RawSpan, _ head: StreamHead, after chain: ClusterChain) {
        self.batch = batch
        self.head = head
        self.chain = chain
    }

    /// Returns the next message; nil after the last one.
    public mutating func next() -> [UInt8]? {
        guard offset < batch.byteCount || offset == 0 && batch.byteCount == 0 && !isDone else { return nil }
        let end = min(offset + Self.sliceBytes, batch.byteCount)
        head.isFirst = offset == 0
        head.isLast = end == batch.byteCount
        let (bytes, after) = StreamMessage.encode(head, batch.extracting(offset..<end), after: chain)
        chain = after
        offset = end
        isDone = head.isLast
        return bytes
    }

    private var isDone = false
}
