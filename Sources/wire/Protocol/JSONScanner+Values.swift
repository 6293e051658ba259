import Bytes

extension JSONScanner {
    /// The next token, with the room's own error.
    @_lifetime(self: copy self)
    mutating func token() throws(MessageError) -> JSONToken {
        do throws(ByteError) {
            return try next()
        } catch {
            throw .notJSON(offset: error.offset)
        }
    }

    @_lifetime(self: copy self)
    mutating func pass(_ token: JSONToken) throws(MessageError) {
        do throws(ByteError) {
            try skip(token)
        } catch {
            throw .notJSON(offset: error.offset)
        }
    }

    /// Where the value stands whose first token was just read; it is passed over.
    @_lifetime(self: copy self)
    mutating func range(of token: JSONToken) throws(MessageError) -> Range<Int> {
        let start = start(of: token)
        try pass(token)
        return start..<offset
    }

    /// Where the token that was just read begins.
    func start(of token: JSONToken) -> Int { offset - length(of: token) }

    private func length(of token: JSONToken) -> Int {
        switch token {
        case .beginObject, .beginArray, .endObject, .endArray: 1
        case .string, .name: tokenBytes.byteCount + 2
        case .number: tokenBytes.byteCount
        case .bool(true), .null: 4
        case .bool(false): 5
        case .end: 0
        }
    }

    /// Whether the bytes are one JSON value and nothing else.
    static func isValue(_ bytes: RawSpan) -> Bool {
        var scanner = JSONScanner(bytes, maximumDepth: deepest)
        do throws(ByteError) {
            while try scanner.next() != .end {}
            return true
        } catch {
            return false
        }
    }
}

enum UTF8Text {
    static func isValid(_ bytes: RawSpan) -> Bool {
        (try? UTF8Span(validating: Span<UInt8>(_bytes: bytes))) != nil
    }
}
