import Bytes
import FuzzSupport
import Policy

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds(seeds.map { Array($0.utf8) })
    return 0
}

/// Fuzz target of filters. Input: a filter, a line break, and texts separated by line breaks. The texts serve as the
/// canonical forms of the filter's literals and as the row's values. Texts that PostgreSQL never writes must do no harm
/// either.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let lines = input(start, count).split(separator: 10, omittingEmptySubsequences: false)
    guard let first = lines.first, let predicate = predicate(String(decoding: first, as: UTF8.self), lines) else {
        return 0
    }
    for shift in 0..<max(1, lines.count) { judge(predicate, lines, shift) }
    return 0
}

private func predicate(_ text: String, _ lines: [ArraySlice<UInt8>]) -> Predicate? {
    let bounds = Filter.Bounds(bytes: 4096, conditions: 20, depth: 8)
    guard let filter = try? Filter.parse(text, within: bounds) else { return nil }
    let settings = FilterCheck.Settings(
        maximumListElements: 100, maximumKeys: 100, maximumWork: 1 << 16, text: .plainUTF8)
    guard let check = try? FilterCheck(filter, columns: columns, settings: settings) else { return nil }
    let texts = lines.dropFirst().map { String(decoding: $0, as: UTF8.self) }
    let canonical = check.literals.indices.map { texts.isEmpty ? check.literals[$0].text : texts[$0 % texts.count] }
    return try? Predicate(check, canonical: canonical)
}

private func judge(_ predicate: Predicate, _ lines: [ArraySlice<UInt8>], _ shift: Int) {
    let bytes = lines.flatMap { $0 }
    var places: [ColumnPlace] = []
    // The row, and then the row before the change.
    for slot in 0..<2 * columns.count {
        let line = lines[(slot + shift) % lines.count]
        let start = lines[..<((slot + shift) % lines.count)].reduce(0) { $0 + $1.count }
        places.append(ColumnPlace(kind: .text, start: UInt32(start), length: UInt32(line.count)))
    }
    for oldRow in [RowImage.OldRow.none, .deleted, .undecided] where predicate.readsOldRow {
        let row = RowImage(bytes: bytes.span.bytes, places: places.span, oldRow: oldRow)
        _ = predicate.verdict(on: row)
    }
    let row = RowImage(bytes: bytes.span.bytes, places: places.span, committed: 8_000_000_000, oldRow: .known)
    let verdict = predicate.verdict(on: row)
    let isNeverAsked = predicate.readsOldRow || predicate.readsClock
    precondition(verdict != .ask || predicate.question != nil || isNeverAsked, "nothing to ask with")
    if case .within(let range) = predicate.access {
        precondition(range.mayHold(row.text(range.slot)) || verdict != .yes && verdict != .ask, "a match out of range")
    }
    guard case .anyOf(let keys) = predicate.access else { return }
    let isReached = keys.contains { key in
        let text = row.text(key.slot)
        if key.part == .prefix {
            return text.byteCount >= key.bytes.count
                && text.extracting(first: key.bytes.count).equals(key.bytes.span.bytes)
        }
        return key.form.equals(text, canonical: key.bytes.span.bytes)
    }
    precondition(isReached || verdict != .yes, "a match without a key")
    precondition(!predicate.isDecidedByAccess || isReached == (verdict == .yes), "the keys alone say something else")
}

private let columns = [
    ColumnFacts(name: "i", type: TypeFacts(oid: 23, name: "integer")),
    ColumnFacts(name: "t", type: TypeFacts(oid: 25, name: "text"), collation: .bytewise),
    ColumnFacts(name: "d", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
    ColumnFacts(name: "n", type: TypeFacts(oid: 1700, name: "numeric")),
    ColumnFacts(name: "f", type: TypeFacts(oid: 701, name: "double precision")),
    ColumnFacts(name: "z", type: TypeFacts(oid: 1184, name: "timestamp with time zone")),
    ColumnFacts(name: "v", type: TypeFacts(oid: 1186, name: "interval")),
    ColumnFacts(name: "c", type: TypeFacts(oid: 1266, name: "time with time zone")),
    ColumnFacts(name: "y", type: TypeFacts(oid: 1082, name: "date")),
    ColumnFacts(name: "j", type: TypeFacts(oid: 3802, name: "jsonb")),
    ColumnFacts(name: "p", type: TypeFacts(oid: 1042, name: "character"), collation: .bytewise),
    ColumnFacts(name: "u", type: TypeFacts(oid: 2950, name: "uuid")),
    ColumnFacts(
        name: "a",
        type: TypeFacts(oid: 1231, name: "numeric[]", shape: .array(of: TypeFacts(oid: 1700, name: "numeric")))),
    ColumnFacts(
        name: "e", type: TypeFacts(oid: 90000, name: "mood", shape: .enumeration(labels: ["sad", "ok"]))),
    ColumnFacts(name: "m", type: TypeFacts(oid: 790, name: "money")),
]

private let seeds = [
    "i=gt.1,t=like.a%b_\\%\n5\naxbc%", "or=(i.in.(1,NULL),and(n.lte.1.50,not.or(d.ilike.%K%,m.eq.1)))\n1\n1.50\nk",
    "z=gte.2026\n2026-03-01 10:20:30.5+00\n0044-03-15 10:00:00+05:30 BC\n-infinity",
    "v=lt.1\n1 year 2 mons -3 days +04:05:06.7",
    "c=gt.1\n10:20:30.5-03:30", "y=neq.1\n0044-03-15 BC",
    "j=cs.{\"a\":[1,{\"b\":null}]}\n{\"a\": [1.0, {\"b\": null}]}\n[1, \"x\"]",
    "a=ov.{1,2}\n{1.50,NULL,NaN}\n[0:1]={7,8}\n{{1,2},{3,4}}\n{\"a\\\"b\"}", "a=gt.{1}\n{1}\n{}", "e=gt.sad\nok",
    "p=eq.x \nx  ", "u=eq.A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11\na0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "f=eq.0\n-0\nNaN\n1e300",
    "or=(changed.n,old.t.eq.a,changed.not.in.(i,\"z\"))\n1\n1.0\na", "changed=t,old.n=gt.1,old.a=cs.{1}\n1\n2\n{1}",
    "z=gt.now-10min,y=lte.now+2d\n2000-01-01 10:20:30+00\n2000-01-02\n-infinity", "not.and=(z.lt.now,old.z.gte.now-1s)",
    "j=eq.1\n1.00\n\"q\\\"\"", "n=in.(1,2.50)\n2.5", "n=eq.1.50\n1.50.0\n1.5",
]
