import Bytes
import Change

/// A binding as the ledger records it.
public struct ListedBinding: Sendable, Hashable {
    public var event = "*"
    public var schema = "*"
    public var table = "*"
    /// Filter in masked form.
    public var filter: String?
    /// Columns that the client asked for; empty for all columns. Older hubs did not record them.
    public var select: [String] = []
    /// Filter as the client sent it. Only code that imports `@_spi(Judging)` sees it, and must show nothing of it.
    @_spi(Judging) public var wholeFilter: String?

    public func isAbout(_ schema: String, _ table: String) -> Bool {
        (self.schema == "*" || self.schema == schema) && (self.table == "*" || self.table == table)
    }

    /// Parses a list of bindings; returns an empty list for anything else.
    static func all(in json: [UInt8]) -> [ListedBinding] {
        var bindings: [ListedBinding] = []
        do throws(ByteError) {
            var scanner = JSONScanner(json.rawBytes)
            guard try scanner.next() == .beginArray else { return [] }
            while try scanner.next() == .beginObject {
                var binding = ListedBinding()
                while try scanner.next() == .name {
                    let name = scanner.text
                    let value = try scanner.next()
                    if value == .string { binding.take(name, scanner.text) }
                    if name == "select", value == .beginArray {
                        binding.select = try texts(&scanner)
                    } else {
                        try scanner.skip(value)
                    }
                }
                bindings.append(binding)
            }
            return bindings
        } catch {
            return []
        }
    }

    /// Reads the texts of an array after its opening bracket.
    private static func texts(_ scanner: inout JSONScanner) throws(ByteError) -> [String] {
        var texts: [String] = []
        while true {
            let value = try scanner.next()
            if value == .endArray { return texts }
            if value == .string { texts.append(scanner.text) }
            try scanner.skip(value)
        }
    }

    /// Parses one list in its masked and its original form. The original supplies `wholeFilter`.
    static func all(in shown: [UInt8], of whole: [UInt8]) -> [ListedBinding] {
        let written = all(in: whole)
        let listed = all(in: shown)
        guard written.count == listed.count else { return [] }
        return zip(listed, written).map { binding, written in
            var binding = binding
            binding.wholeFilter = written.filter
            return binding
        }
    }

    private mutating func take(_ name: String, _ value: String) {
        switch name {
        case "event": event = value
        case "schema": schema = value
        case "table": table = value
        case "filter": filter = value
        default: break
        }
    }
}

extension LedgerNote {
    /// Returns the note in masked form: without the masked parts of claims and filters.
    func masked(by masking: Masking) -> LedgerNote {
        guard !masking.isNothing else { return self }
        var shown = self
        shown.claims = masking.lookingInto(claims, of: [.claims])
        shown.bindings = Self.masked(bindings, by: masking)
        if !subject.isEmpty, masking.masks("sub", of: .claims) { shown.subject = Array(masking.mark(subject).utf8) }
        return shown
    }

    /// Returns the list in masked form. If a filter has masked parts, the list is written anew with the known fields
    /// only.
    private static func masked(_ bindings: [UInt8], by masking: Masking) -> [UInt8] {
        guard !bindings.isEmpty else { return bindings }
        let listed = ListedBinding.all(in: bindings)
        let shown = listed.map { binding in
            var binding = binding
            binding.filter = binding.filter.map {
                masking.filter($0, of: TableName(schema: binding.schema, name: binding.table))
            }
            return binding
        }
        guard shown != listed || (listed.isEmpty && masking.mentions(bindings, of: [.claims])) else { return bindings }
        var writer = ByteWriter(capacity: bindings.count)
        writer.append("[")
        for (index, binding) in shown.enumerated() {
            writer.append(index == 0 ? "{\"event\":" : ",{\"event\":")
            JSONText.appendString(binding.event, to: &writer)
            writer.append(",\"schema\":")
            JSONText.appendString(binding.schema, to: &writer)
            writer.append(",\"table\":")
            JSONText.appendString(binding.table, to: &writer)
            if let filter = binding.filter {
                writer.append(",\"filter\":")
                JSONText.appendString(filter, to: &writer)
            }
            for (place, column) in binding.select.enumerated() {
                writer.append(place == 0 ? ",\"select\":[" : ",")
                JSONText.appendString(column, to: &writer)
            }
            writer.append(binding.select.isEmpty ? "}" : "]}")
        }
        writer.append("]")
        return writer.bytes.copied()
    }
}
