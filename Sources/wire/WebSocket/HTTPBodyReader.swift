import Bytes

/// Reader of one request's body, plain or chunked (RFC 9112 §7.1), into memory. It refuses a body above the limit.
public struct HTTPBodyReader: ~Copyable {
    private enum State {
        case data(left: Int)
        case chunkSize
        case chunkData(left: Int)
        case chunkEnd
        case trailer
        case complete
    }

    private var state: State
    private let maximum: Int
    /// Number of bytes that chunk extensions and trailers may still have. The reader discards them.
    private var besideBytes: Int
    private var collected: ByteWriter
    private var line: [UInt8] = []

    /// Makes a reader. Throws before the body arrives if its announced length is too large.
    public init(_ length: HTTPBodyLength, limits: HTTPLimits) throws(HTTPRefusal) {
        maximum = limits.maximumBodyBytes
        besideBytes = limits.maximumHeadBytes
        collected = ByteWriter()
        switch length {
        case .bytes(let count):
            guard count <= maximum else { throw Self.tooLarge }
            state = count == 0 ? .complete : .data(left: count)
        case .chunked: state = .chunkSize
        }
    }

    private static let tooLarge = HTTPRefusal(.contentTooLarge, "the request's body is too large")
    private static let badChunk = HTTPRefusal(.badRequest, "the request's body is not chunked as it says")

    public var isComplete: Bool {
        if case .complete = state { true } else { false }
    }

    /// Part of the body read so far, without the framing of chunks.
    public var bytes: RawSpan {
        @_lifetime(borrow self)
        get { collected.bytes }
    }

    /// Reads the body's bytes at the start of `bytes` and returns their number. Bytes after them belong to the next
    /// request.
    public mutating func read(_ bytes: RawSpan) throws(HTTPRefusal) -> Int {
        var offset = 0
        while offset < bytes.byteCount, !isComplete {
            let rest = bytes.extracting(offset..<bytes.byteCount)
            offset += try step(rest)
        }
        return offset
    }

    private mutating func step(_ rest: RawSpan) throws(HTTPRefusal) -> Int {
        switch state {
        case .data(let left):
            let taken = try collect(rest, left)
            state = taken == left ? .complete : .data(left: left - taken)
            return taken
        case .chunkData(let left):
            let taken = try collect(rest, left)
            state = taken == left ? .chunkEnd : .chunkData(left: left - taken)
            return taken
        case .chunkSize, .chunkEnd, .trailer:
            try take(rest.byte(0))
            return 1
        case .complete:
            return 0
        }
    }

    private mutating func collect(_ rest: RawSpan, _ left: Int) throws(HTTPRefusal) -> Int {
        let taken = min(left, rest.byteCount)
        guard taken <= maximum - collected.count else { throw Self.tooLarge }
        collected.append(rest.extracting(0..<taken))
        return taken
    }

    // MARK: Lines between the chunks

    /// Reads one byte of a line. At the line's end the reader evaluates the line.
    private mutating func take(_ byte: UInt8) throws(HTTPRefusal) {
        if line.last == HTTPSyntax.carriageReturn {
            guard byte == HTTPSyntax.lineFeed else { throw Self.badChunk }
            line.removeLast()
            try lineEnded()
            line.removeAll(keepingCapacity: true)
            return
        }
        guard byte == HTTPSyntax.carriageReturn || (HTTPSyntax.isValueCharacter(byte) && mayHoldText) else {
            throw Self.badChunk
        }
        line.append(byte)
        // A line that contains only a size does not count. Bytes beyond the longest size count against the allowance.
        if line.count > Self.longestSizeLine {
            besideBytes -= 1
            guard besideBytes >= 0 else { throw HTTPRefusal(.headersTooLarge, "the request's trailers are too large") }
        }
    }

    /// True if a line may contain text. After a chunk's data only a line break may follow.
    private var mayHoldText: Bool {
        if case .chunkEnd = state { false } else { true }
    }

    /// Length of the longest size line: fifteen digits and the carriage return.
    private static let longestSizeLine = 16

    private mutating func lineEnded() throws(HTTPRefusal) {
        switch state {
        case .chunkSize:
            let size = try chunkSize()
            guard size <= maximum - collected.count else { throw Self.tooLarge }
            state = size == 0 ? .trailer : .chunkData(left: size)
        case .chunkEnd: state = .chunkSize
        case .trailer:
            if line.isEmpty { state = .complete }
            besideBytes -= line.count
            guard besideBytes >= 0 else { throw HTTPRefusal(.headersTooLarge, "the request's trailers are too large") }
        case .data, .chunkData, .complete:
            preconditionFailure("a body has lines only between its chunks")
        }
    }

    /// Reads hexadecimal digits. Extensions may follow after a semicolon; the reader ignores them.
    private func chunkSize() throws(HTTPRefusal) -> Int {
        let digits = line.prefix { Hex.value($0) != nil }
        let rest = line.dropFirst(digits.count).drop { HTTPSyntax.isBlank($0) }
        guard !digits.isEmpty, digits.count < Self.longestSizeLine, rest.isEmpty || rest.first == UInt8(ascii: ";")
        else { throw Self.badChunk }
        // Fifteen digits of four bits fit an Int.
        return digits.reduce(0) { $0 << 4 | Int(Hex.value($1) ?? 0) }
    }
}
