import Bytes
import Policy

/// Value of a column in a test's row.
enum TestValue: Sendable, Hashable {
    case absent
    case null
    case text(String)
}

extension Predicate {
    /// Returns the verdict on a row with these values, by column index.
    func verdict(_ values: [TestValue], moment: Int64? = nil, committed: Int64? = nil) -> Verdict {
        of(values, moment, committed) { verdict(on: $0) }
    }

    /// Returns the verdict of the filter alone on a row with these values.
    func filterVerdict(_ values: [TestValue]) -> Verdict {
        of(values, nil) { filterVerdict(on: $0) }
    }

    /// Returns the verdict of the filter alone on a change from one row to another.
    func filterVerdict(_ values: [TestValue], before: [TestValue], _ oldRow: RowImage.OldRow) -> Verdict {
        of(values + before, nil, nil, oldRow) { filterVerdict(on: $0) }
    }

    /// Returns the verdict on a change from one row to another.
    func verdict(_ values: [TestValue], before: [TestValue], _ oldRow: RowImage.OldRow) -> Verdict {
        of(values + before, nil, nil, oldRow) { verdict(on: $0) }
    }

    private func of(
        _ values: [TestValue], _ moment: Int64?, _ committed: Int64? = nil, _ oldRow: RowImage.OldRow = .none,
        _ verdict: (borrowing RowImage) -> Verdict
    ) -> Verdict {
        var bytes: [UInt8] = []
        var places: [ColumnPlace] = []
        for value in values {
            switch value {
            case .absent: places.append(.absent)
            case .null: places.append(ColumnPlace(kind: .null, start: UInt32(bytes.count), length: 0))
            case .text(let text):
                let utf8 = Array(text.utf8)
                places.append(
                    ColumnPlace(kind: .text, start: UInt32(bytes.count), length: UInt32(utf8.count)))
                bytes += utf8
            }
        }
        let row = RowImage(
            bytes: bytes.span.bytes, places: places.span, moment: moment, committed: committed, oldRow: oldRow)
        return verdict(row)
    }

    /// True if a row with these values has one of the keys by which the index finds the predicate.
    func isReached(by values: [TestValue]) -> Bool {
        switch access {
        case .never: return false
        case .always, .scan: return true
        case .within(let range):
            guard case .text(let text) = values[range.slot] else { return false }
            return range.mayHold(Array(text.utf8).span.bytes)
        case .anyOf(let keys):
            return keys.contains { key in
                guard case .text(let text) = values[key.slot] else { return false }
                return key.holds(text)
            }
        }
    }
}

extension EqualityKey {
    func holds(_ text: String) -> Bool {
        let value = Array(text.utf8)
        if part == .prefix { return value.starts(with: bytes) }
        if part == .element {
            var isFound = false
            EqualityKey.eachPlainElement(of: value.span.bytes) { isFound = isFound || $0.equals(bytes.span.bytes) }
            return isFound
        }
        let isEqual = form.equals(value.span.bytes, canonical: bytes.span.bytes)
        let hashes = form.hash(value.span.bytes) == form.hash(bytes.span.bytes)
        precondition(!isEqual || hashes, "equal values have one hash")
        return isEqual
    }
}

extension FilterCheck.Settings {
    static let forTests = FilterCheck.Settings(
        maximumListElements: 100, maximumKeys: 1000, maximumWork: 1 << 20, text: .plainUTF8)
}
