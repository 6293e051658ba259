import Bytes

extension JSONScanner {
    /// Returns the next token. Throws this module's error type instead of the scanner's.
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

    /// Skips the value whose first token was just read. Returns the range of the whole value.
    @_lifetime(self: copy self)
    mutating func range(of token: JSONToken) throws(MessageError) -> Range<Int> {
        let start = start(of: token)
        try pass(token)
        return start..<offset
    }

    /// Returns the offset of the token that was just read.
    func start(of token: JSONToken) -> Int {
        assert(token != .name && token != .end, "only tokens of values end where the scanner is")
        let start = offset - length(of: token)
        assert(start >= 0, "a token lies within the text")
        return start
    }

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

    /// True if the bytes are exactly one JSON value.
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
