import Bytes

/// Offsets of the number, the time and the owner in the last change. The parser searches there first in the next
/// change.
struct Hint {
    fileprivate(set) var sequence = 0
    fileprivate(set) var moment = 0
    /// Offset of the owner; nil if changes have none.
    fileprivate(set) var owner: Int? = 0
}

/// Message of a server, parsed only as much as a load generator needs.
enum ServerMessage: Equatable {
    /// Change of a row. The time is nil if it is not a number.
    case change(sequence: Int64, sentMicroseconds: Int64?, owner: Int64?)
    case joined
    case subscribed
    /// All presences of a topic. The range is that of the JSON object in the message.
    case presenceState(Range<Int>)
    /// Presences that joined or left. The range is that of the JSON object in the message.
    case presenceDiff(Range<Int>)
    /// Refusal of a join.
    case refused
    /// Reply to a heartbeat, or another message that the load generator ignores.
    case other
    case malformed

    /// Parses `[join_ref, ref, topic, event, payload]` (version 2.0.0). `hint` holds the offsets of the numbers in the
    /// last change, because they are at or near these offsets in the next one. A broadcast in binary form (its first
    /// byte is 4) is parsed as a change, too.
    init(_ text: RawSpan, hint: inout Hint) {
        if text.byteCount > 0, text.byte(0) == 4 {
            self = Self.numbered(text, &hint)
            return
        }
        guard let event = Self.eventOffset(text) else {
            self = .malformed
            return
        }
        let rest = text.extracting(event..<text.byteCount)
        if rest.starts(with: "\"postgres_changes\"") {
            self = Self.change(rest, &hint)
        } else if rest.starts(with: "\"phx_reply\"") {
            self = Self.reply(text, rest)
        } else if rest.starts(with: "\"system\"") {
            self = Self.system(rest)
        } else if rest.starts(with: "\"presence_diff\",") {
            self = .presenceDiff(event + 16..<text.byteCount - 1)
        } else if rest.starts(with: "\"presence_state\",") {
            self = .presenceState(event + 17..<text.byteCount - 1)
        } else if rest.starts(with: "\"phx_close\"") || rest.starts(with: "\"phx_error\"") {
            self = .refused
        } else {
            self = .other
        }
    }

    /// Returns the offset of the event, the fourth element of a message. The first three elements are texts or null.
    private static func eventOffset(_ text: RawSpan) -> Int? {
        guard text.byteCount > 0, text.byte(0) == UInt8(ascii: "[") else { return nil }
        var commas = 0
        var isInText = false
        var at = 1
        while at < text.byteCount {
            switch text.byte(at) {
            case UInt8(ascii: "\\") where isInText: at += 1
            case UInt8(ascii: "\""): isInText.toggle()
            case UInt8(ascii: ",") where !isInText:
                commas += 1
                if commas == 3 { return at + 1 }
            default: break
            }
            at += 1
        }
        return nil
    }

    private static func change(_ text: RawSpan, _ hint: inout Hint) -> ServerMessage {
        guard let sequence = number("\"seq\":", text, &hint.sequence), let sent = moment(text, &hint.moment) else {
            return .malformed
        }
        return .change(sequence: sequence, sentMicroseconds: sent, owner: owner(text, &hint))
    }

    private static func owner(_ text: RawSpan, _ hint: inout Hint) -> Int64? {
        guard var place = hint.owner else { return nil }
        let owner = number("\"owner\":", text, &place)
        hint.owner = owner == nil ? nil : place
        return owner
    }

    /// Parses any message that has a number and a time as a change.
    static func numbered(_ text: RawSpan, _ hint: inout Hint) -> ServerMessage {
        guard let sequence = number("\"seq\":", text, &hint.sequence), let sent = moment(text, &hint.moment) else {
            return .malformed
        }
        return .change(sequence: sequence, sentMicroseconds: sent, owner: nil)
    }

    /// Returns the time that a change carries. The outer optional is nil if it carries none, the inner one if its time
    /// is a text.
    private static func moment(_ text: RawSpan, _ hint: inout Int) -> Int64?? {
        if let number = number("\"at\":", text, &hint) { return number }
        let value = hint + 5
        return value < text.byteCount && text.byte(value) == UInt8(ascii: "\"") ? .some(nil) : nil
    }

    /// Returns the number that follows a name. Searches first at the last offset, then near it, then everywhere. This
    /// must be fast, so that the benchmark measures the hub and not its clients.
    private static func number(_ name: StaticString, _ text: RawSpan, _ hint: inout Int) -> Int64? {
        let found =
            text.has(name, at: hint)
            ? hint : text.firstOffset(of: name, from: max(0, hint - 96)) ?? text.firstOffset(of: name, from: 0)
        guard let found else { return nil }
        hint = found
        return text.wholeNumber(at: found + name.utf8CodeUnitCount)
    }

    private static func reply(_ text: RawSpan, _ rest: RawSpan) -> ServerMessage {
        // The only refs are those of this generator: a single digit, twice, for joins; "h" for heartbeats.
        guard text.byteCount > 9, text.byte(2) == text.byte(6), text.byte(2) &- 48 < 10, text.byte(1) == text.byte(5),
            text.byte(1) == UInt8(ascii: "\"")
        else { return .other }
        return rest.firstOffset(of: "\"status\":\"ok\"", from: 0) != nil ? .joined : .refused
    }

    private static func system(_ text: RawSpan) -> ServerMessage {
        if text.firstOffset(of: "\"Subscribed to PostgreSQL\"", from: 0) != nil { return .subscribed }
        return text.firstOffset(of: "\"status\":\"error\"", from: 0) != nil ? .refused : .other
    }
}

extension RawSpan {
    func starts(with text: StaticString) -> Bool {
        let length = text.utf8CodeUnitCount
        return byteCount >= length && extracting(0..<length).equals(text)
    }

    func has(_ text: StaticString, at place: Int) -> Bool {
        let length = text.utf8CodeUnitCount
        return place + length <= byteCount && extracting(place..<place + length).equals(text)
    }

    /// Returns the first offset at or after `start` at which the text occurs. The text must have at least two bytes.
    func firstOffset(of text: StaticString, from start: Int) -> Int? {
        let length = text.utf8CodeUnitCount
        // SAFETY: a static text lives as long as the program and has its first two bytes.
        let (first, second) = unsafe (text.utf8Start[0], text.utf8Start[1])
        var at = start
        while at + length <= byteCount {
            if byte(at) == first, byte(at + 1) == second, extracting(at..<at + length).equals(text) { return at }
            at += 1
        }
        return nil
    }

    /// Returns the whole number that begins at this offset, which may have a minus sign; nil if there is none.
    func wholeNumber(at start: Int) -> Int64? {
        var at = start
        let isNegative = at < byteCount && byte(at) == UInt8(ascii: "-")
        if isNegative { at += 1 }
        let first = at
        var value: Int64 = 0
        while at < byteCount, case let digit = byte(at) &- 48, digit < 10 {
            let (scaled, overflow) = value.multipliedReportingOverflow(by: 10)
            let (sum, carried) = scaled.addingReportingOverflow(Int64(digit))
            if overflow || carried { return nil }
            value = sum
            at += 1
        }
        guard at > first else { return nil }
        return isNegative ? -value : value
    }
}
