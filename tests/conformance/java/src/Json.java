import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** As much of JSON as the worker needs: what the suite wrote, and what it reads. */
final class Json {

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** Map, List, String, Long or Double, Boolean, null. */
  static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value();
    json.space();
    if (json.at != text.length()) {
      throw json.bad();
    }
    return value;
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> object(Object value) {
    return (Map<String, Object>) value;
  }

  private IllegalArgumentException bad() {
    return new IllegalArgumentException("no JSON at " + at + ": " + text);
  }

  private void space() {
    while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
      at++;
    }
  }

  private boolean take(String word) {
    space();
    boolean there = text.startsWith(word, at);
    at += there ? word.length() : 0;
    return there;
  }

  private void need(String word) {
    if (!take(word)) {
      throw bad();
    }
  }

  private Object value() {
    if (take("{")) {
      Map<String, Object> map = new LinkedHashMap<>();
      for (boolean more = !take("}"); more; more = more(map.size(), "}")) {
        need("\"");
        String name = string();
        need(":");
        map.put(name, value());
      }
      return map;
    }
    if (take("[")) {
      List<Object> list = new ArrayList<>();
      for (boolean more = !take("]"); more; more = more(list.size(), "]")) {
        list.add(value());
      }
      return list;
    }
    if (take("\"")) {
      return string();
    }
    if (take("true")) {
      return true;
    }
    if (take("false")) {
      return false;
    }
    return take("null") ? null : number();
  }

  private boolean more(int count, String end) {
    if (count > 0 && take(",")) {
      return true;
    }
    need(end);
    return false;
  }

  private Object number() {
    int from = at;
    while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    String digits = text.substring(from, at);
    if (digits.isEmpty()) {
      throw bad();
    }
    if (digits.matches("-?[0-9]+")) {
      return Long.valueOf(digits);
    }
    return Double.valueOf(digits);
  }

  private String string() {
    StringBuilder out = new StringBuilder();
    for (; at < text.length(); at++) {
      char c = text.charAt(at);
      if (c == '"') {
        at++;
        return out.toString();
      }
      if (c != '\\') {
        out.append(c);
        continue;
      }
      char escape = text.charAt(++at);
      if (escape == 'u') {
        out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
        at += 4;
      } else {
        int index = "bfnrt".indexOf(escape);
        out.append(index < 0 ? escape : "\b\f\n\r\t".charAt(index));
      }
    }
    throw bad();
  }

  static String write(Object value) {
    StringBuilder out = new StringBuilder();
    write(value, out);
    return out.toString();
  }

  private static void write(Object value, StringBuilder out) {
    if (value instanceof Map<?, ?> map) {
      String before = "{";
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        out.append(before);
        write(entry.getKey(), out);
        out.append(':');
        write(entry.getValue(), out);
        before = ",";
      }
      out.append(map.isEmpty() ? "{}" : "}");
    } else if (value instanceof List<?> list) {
      String before = "[";
      for (Object item : list) {
        out.append(before);
        write(item, out);
        before = ",";
      }
      out.append(list.isEmpty() ? "[]" : "]");
    } else if (value instanceof String string) {
      writeString(string, out);
    } else {
      out.append(value);
    }
  }

  private static void writeString(String string, StringBuilder out) {
    out.append('"');
    for (char c : string.toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 0x20) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    out.append('"');
  }
}
