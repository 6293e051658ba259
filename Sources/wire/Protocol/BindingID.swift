import Bytes

/// Id by which a client recognizes one of its bindings: a hash of the binding's parameters. The order of the object's
/// members and the white space do not change the id. If a name occurs twice, the last one counts.
enum BindingID {
    static func of(_ object: RawSpan) throws(ByteError) -> UInt32 {
        var scanner = JSONScanner(object, maximumDepth: JSONScanner.deepest)
        let hash = try hash(of: try scanner.next(), &scanner)
        let id = UInt32(truncatingIfNeeded: hash & 0x7fff_ffff)
        // JavaScript treats zero as false, so zero must not be an id.
        return id == 0 ? 1 : id
    }

    /// Returns the hash of the value that begins with the token. Recurses no deeper than the scanner's limit, which is
    /// small.
    private static func hash(of token: JSONToken, _ scanner: inout JSONScanner) throws(ByteError) -> UInt64 {
        switch token {
        case .beginObject: return try object(&scanner)
        case .beginArray: return try array(&scanner)
        case .string, .name: return text(scanner, seed: 1)
        case .number:
            var hash = KeyHash(seed: 2)
            hash.combine(scanner.tokenBytes)
            return hash.value
        case .bool(let value): return value ? 3 : 4
        case .null, .endObject, .endArray, .end: return 5
        }
    }

    private static func text(_ scanner: borrowing JSONScanner, seed: UInt64) -> UInt64 {
        var hash = KeyHash(seed: seed)
        guard scanner.hasEscapes else {
            hash.combine(scanner.tokenBytes)
            return hash.value
        }
        var text = ByteWriter(capacity: 64)
        scanner.appendText(to: &text)
        hash.combine(text.bytes)
        return hash.value
    }

    private static func array(_ scanner: inout JSONScanner) throws(ByteError) -> UInt64 {
        var result = KeyHash(seed: 6)
        while true {
            let token = try scanner.next()
            if token == .endArray { return result.value }
            result.combine(try hash(of: token, &scanner))
        }
    }

    private static func object(_ scanner: inout JSONScanner) throws(ByteError) -> UInt64 {
        var members: [(name: UInt64, value: UInt64)] = []
        while try scanner.next() == .name {
            let name = text(scanner, seed: 7)
            members.append((name, try hash(of: try scanner.next(), &scanner)))
        }
        // If a name occurs twice, the last one counts. The sort is stable, so the order of equal names stays.
        members.sort { $0.name < $1.name }
        var result = KeyHash(seed: 8)
        for (place, member) in members.enumerated() {
            if place + 1 < members.count, members[place + 1].name == member.name { continue }
            result.combine(member.name)
            result.combine(member.value)
        }
        return result.value
    }
}

/// Text of a JSON object in the notation in which the reference server (Supabase Realtime) prints its own maps:
/// `%{"event" => "INSERT"}`. People read this text in messages; no client parses it.
enum InspectedTerm {
    /// Longest text in bytes. A longer one is cut, because the hub sends it back to the client.
    static let maximumBytes = 1024

    static func text(of object: RawSpan) -> String {
        var scanner = JSONScanner(object, maximumDepth: JSONScanner.deepest)
        do throws(ByteError) {
            let text = try term(try scanner.next(), &scanner)
            guard text.utf8.count > maximumBytes else { return text }
            let cut = String(text.unicodeScalars.prefix(maximumBytes / 4)) + "..."
            assert(cut.utf8.count <= maximumBytes + 3, "a text that was cut is no longer than allowed")
            return cut
        } catch {
            return "%{}"
        }
    }

    private static func term(_ token: JSONToken, _ scanner: inout JSONScanner) throws(ByteError) -> String {
        switch token {
        case .beginObject: return try map(&scanner)
        case .beginArray: return try list(&scanner)
        case .string, .name: return quoted(scanner.text)
        case .number: return scanner.tokenBytes.text
        case .bool(let value): return value ? "true" : "false"
        case .null, .endObject, .endArray, .end: return "nil"
        }
    }

    private static func map(_ scanner: inout JSONScanner) throws(ByteError) -> String {
        var members: [String: String] = [:]
        while try scanner.next() == .name {
            let name = scanner.text
            members[name] = try term(try scanner.next(), &scanner)
        }
        let sorted = members.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
        return "%{" + sorted.map { quoted($0.key) + " => " + $0.value }.joined(separator: ", ") + "}"
    }

    private static func list(_ scanner: inout JSONScanner) throws(ByteError) -> String {
        var elements: [String] = []
        while true {
            let token = try scanner.next()
            if token == .endArray { return "[" + elements.joined(separator: ", ") + "]" }
            elements.append(try term(token, &scanner))
        }
    }

    private static func quoted(_ text: String) -> String {
        var result = "\""
        for character in text.unicodeScalars {
            switch character {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            default: result.unicodeScalars.append(character)
            }
        }
        return result + "\""
    }
}
